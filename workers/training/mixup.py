"""timm's Mixup and CutMix, one draw per virtual rank's share."""

from typing import Any

from torch import Tensor

from ...jobs.run.settings import RecipeSettings


def make_mixup(recipe: RecipeSettings, classes: int) -> Any:
    """Return a callable (images, labels) -> (images, soft targets [B, classes]), or None where
    nothing is mixed.

    Draws come from NumPy's global generator, which the caller seeds for each position.
    """
    if not (recipe.mixup or recipe.cutmix):
        return None
    from timm.data.mixup import Mixup, mixup_target

    class AnySizeMixup(Mixup):
        """Mixup that takes the odd shares of a short last batch too.

        The middle image is mixed with itself.
        """

        def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            factor = self._mix_batch(images)
            return images, mixup_target(labels, self.num_classes, factor, self.label_smoothing)

    return AnySizeMixup(
        mixup_alpha=recipe.mixup,
        cutmix_alpha=recipe.cutmix,
        prob=recipe.mix_prob,
        switch_prob=recipe.mix_switch_prob,
        mode="batch",
        label_smoothing=recipe.label_smoothing,
        num_classes=classes,
    )

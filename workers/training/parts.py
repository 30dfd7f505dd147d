"""Which parts of a backbone are trained, and how fast each: for transfer and fine-tuning."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from ...jobs.run.settings import RecipeSettings
from ..errors import BackboneError

if TYPE_CHECKING:
    from .trainee import Trainee


def leave_trainable(trainee: "Trainee", part: Literal["all", "attention", "classifier"]) -> None:
    """Freeze all of the backbone but one part and the classifier.

    Where the classifier alone is trained, the features are fixed: no dropout, and the running
    statistics of normalisation.

    Raises:
        BackboneError: the backbone has no such part.
    """
    if part == "all":
        return
    backbone = trainee.backbone
    kept = {id(value) for module in _classifiers(backbone) for value in module.parameters()}
    if not kept:
        raise BackboneError(f"trainable: {part} needs a backbone with a classifier")
    if part == "attention":
        found = {id(value) for module in _attention(backbone) for value in module.parameters()}
        if not found:
            raise BackboneError("trainable: attention needs a backbone with attention")
        kept |= found
    for value in backbone.parameters():
        value.requires_grad_(value.requires_grad and id(value) in kept)
    trainee.fixed = part == "classifier"


def _classifiers(backbone: Any) -> list[nn.Module]:
    """Return the classifier, or both of a distilled model."""
    found = backbone.get_classifier()
    return list(found) if isinstance(found, tuple) else [found]


def _attention(backbone: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of attention; classes are named so, and so are some whole blocks."""
    for module in backbone.modules():
        name = type(module).__name__
        if ("Attention" in name or "Attn" in name) and "Block" not in name:
            yield module


def layer_groups(
    trainee: "Trainee", recipe: RecipeSettings, not_decayed: Collection[str]
) -> list[dict[str, Any]]:
    """Return the optimizer's groups with a learning rate that falls from layer to layer.

    The backbone's layers are those of its `group_matcher`, as timm defines it (Bao et al. 2022,
    BEiT). The head beside it has the whole rate.

    Args:
        trainee: backbone and head.
        recipe: `layer_decay`, `weight_decay`, `decay_all`.
        not_decayed: names of the backbone's parameters without weight decay.

    Raises:
        BackboneError: the backbone does not say which layers it has.
    """
    from timm.optim import param_groups_layer_decay, param_groups_weight_decay

    if not hasattr(trainee.backbone, "group_matcher"):
        name = type(trainee.backbone).__name__
        raise BackboneError(f"layer_decay needs a backbone with a group_matcher; {name} has none")
    assert recipe.layer_decay is not None
    groups: list[dict[str, Any]] = param_groups_layer_decay(
        trainee.backbone,
        weight_decay=recipe.weight_decay,
        no_weight_decay_list=not_decayed,
        weight_decay_exclude_1d=not recipe.decay_all,
        layer_decay=recipe.layer_decay,
    )
    if trainee.head is not None:
        # Weight decay is by the groups here: nothing is left for timm to part.
        groups += param_groups_weight_decay(
            trainee.head, recipe.weight_decay, weight_decay_exclude_1d=not recipe.decay_all
        )
    return groups

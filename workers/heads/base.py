"""What training asks of a head, and the making of one."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor, nn

from ...jobs.grid.heads import HEADS
from ...jobs.grid.own_head import COMMON
from ...jobs.run.settings import HeadSettings
from ..models.tokens import Grid
from ..own_parts import OwnPartError, load

# Epochs over which DRLoc's published program raises λ.
CODE_WARMUP = 20


class Head(Protocol):
    """What training asks of a head, a torch module; `weight_at` says how much its loss counts.

    A head that draws may have a method `draw(batch, generator)` as well, whose result its call then
    gets in place of the generator: a generator cannot enter a compiled graph. With a method
    `split(draws, sizes)` beside it, what is drawn for a share does not depend on how the share is
    cut into micro-batches: the method returns the draws of each part, of as many images as `sizes`
    says.
    """

    def __call__(
        self, grids: list[Tensor], draws: Any, places: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss (mean over the images) and metrics (each a mean over the images), all
        scalars.

        Args:
            grids: [B, h, w, D] each: the backbone's final patch tokens, or those of every block.
            draws: a CPU generator of the `pair` stream, the only source of draws; or what `draw`
                returned.
            places: [B, h·w] int64, where each token's patch lay in the image; None where nothing
                was shuffled.
        """
        ...


def trains_module(head: HeadSettings) -> bool:
    """Return whether a head is a module of its own beside the classifier.

    Args:
        head: name and resolved parameters.
    """
    return head.is_own or HEADS[head.name].module is not None


def build_head(head: HeadSettings, grids: list[Grid]) -> nn.Module | None:
    """Make the head of a run.

    None where nothing is trained beside the classifier (or with weight 0 throughout).

    Args:
        head: name and resolved parameters.
        grids: the token grids that it will get.
    """
    if not trains_module(head) or head.shared.weight == 0:
        return None
    if head.source is not None:
        return _own(head.name, head.source, head.params, grids)
    module = import_module(f".{HEADS[head.name].module}", __package__)
    made: nn.Module = module.build(grids, head.params)
    return made


def is_on_features(head: HeadSettings) -> bool:
    """Return whether a head learns from the features of whole images; see `FeatureHead`."""
    return not head.is_own and HEADS[head.name].is_on_features


def build_on_features(head: HeadSettings, backbone: nn.Module) -> nn.Module | None:
    """Make the head of a run that learns from the features of whole images; None with weight 0.

    Args:
        head: name and resolved parameters.
        backbone: that it works on.
    """
    if head.shared.weight == 0:
        return None
    module = import_module(f".{HEADS[head.name].module}", __package__)
    made: nn.Module = module.build(backbone, head.params)
    return made


def _own(name: str, source: str, params: Mapping[str, Any], grids: list[Grid]) -> nn.Module:
    """Make a lab's own head from the source that came with the run.

    Raises:
        OwnPartError: its class is no head.
    """
    made = load("head", name, source)(
        grids, **{key: value for key, value in params.items() if key not in COMMON}
    )
    if not isinstance(made, nn.Module):
        raise OwnPartError(f"head {name}: must be a torch.nn.Module")
    return made


def weight_at(head: HeadSettings, epoch: int, epochs: int) -> float:
    """Return the factor of a head's loss in an epoch, counted from 0, of a schedule over `epochs`.

    `code` is the schedule of DRLoc's published program, which its paper does not mention: 20 epochs
    up from 0, then down in a straight line to 0 at the end.
    """
    weight = head.shared.weight
    if head.shared.weight_schedule != "code":
        return weight
    if epoch <= CODE_WARMUP:
        return weight * epoch / CODE_WARMUP
    return weight * max(0.0, 1.0 - (epoch - CODE_WARMUP) / max(1, epochs - CODE_WARMUP))

"""Which parts of a backbone are trained, and how fast each: for transfer and fine-tuning."""

import fnmatch
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from ...jobs.run.settings import RecipeSettings
from ..errors import BackboneError
from ..models.patchconvnet import ClassTokens

if TYPE_CHECKING:
    from .trainee import Trainee


Part = Literal["all", "attention", "classifier"]


def leave_trainable(trainee: "Trainee", recipe: RecipeSettings) -> None:
    """Freeze what a recipe does not train of the backbone.

    Where the classifier alone is trained, the features are fixed: no dropout, and the running
    statistics of normalisation.

    Args:
        trainee: the backbone with its head.
        recipe: `trainable` and `frozen`.

    Raises:
        BackboneError: the backbone has no such part or parameter.
    """
    part = recipe.trainable
    if part == "all" and not recipe.frozen:
        return
    kept = {id(value) for value in trained_of(trainee.backbone, part, recipe.frozen)}
    for value in trainee.backbone.parameters():
        value.requires_grad_(value.requires_grad and id(value) in kept)
    trainee.fixed = part == "classifier"
    trainee.train()


def trained_of(backbone: nn.Module, part: Part, frozen: Sequence[str]) -> list[nn.Parameter]:
    """Return the parameters of a backbone's part that no pattern of `frozen` names.

    Raises:
        BackboneError: there is no such part, a pattern names no parameter, or none is left.
    """
    left_out = {id(value) for value in _named(backbone, frozen)}
    found = [value for value in parameters_of(backbone, part) if id(value) not in left_out]
    if not found:
        raise BackboneError(f"frozen: {', '.join(frozen)} leaves nothing of the backbone to train")
    return found


def _named(backbone: nn.Module, patterns: Sequence[str]) -> list[nn.Parameter]:
    known = dict(backbone.named_parameters())
    found: list[nn.Parameter] = []
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            raise BackboneError(
                f"frozen: {type(backbone).__name__} has no parameter {pattern!r}; it has"
                f" {', '.join(list(known)[:4])} …"
            )
        found += [known[name] for name in names]
    return found


def parameters_of(backbone: Any, part: Part) -> list[nn.Parameter]:
    """Return what is trained of a backbone.

    Raises:
        BackboneError: the backbone has no such part.
    """
    if part == "all":
        return list(backbone.parameters())
    name = type(backbone).__name__
    found = backbone.get_classifier() if hasattr(backbone, "get_classifier") else nn.Identity()
    # A distilled model has two.
    classifiers = list(found) if isinstance(found, tuple) else [found]
    kept = [value for module in classifiers for value in _of_classifier(module)]
    if not kept:
        raise BackboneError(f"trainable: {part} needs a classifier; {name} has none")
    if part == "classifier":
        return kept
    attention = [value for module in _attention(backbone) for value in module.parameters()]
    if not attention:
        raise BackboneError(f"trainable: attention needs attention; {name} has none")
    return [*kept, *attention]


def _of_classifier(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that work on fixed features: tokens of classes make the features."""
    return [
        value
        for name, value in module.named_parameters()
        if not (isinstance(module, ClassTokens) and name == "tokens")
    ]


def _attention(backbone: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of attention.

    timm names their classes so, and some blocks around them: the innermost count. ResNeSt's split
    attention is a convolution.
    """
    for module in backbone.modules():
        if _is_attention(module) and not any(
            _is_attention(inner) for inner in module.modules() if inner is not module
        ):
            yield module


def _is_attention(module: nn.Module) -> bool:
    name = type(module).__name__
    return name in _ATTENTION or (("Attention" in name or "Attn" in name) and name != "SplitAttn")


# Attention by another name: of XCiT and ConViT.
_ATTENTION = frozenset(("XCA", "GPSA", "MHSA"))


def require_layers(backbone: nn.Module) -> None:
    """Make sure that a backbone says which layers it has.

    Raises:
        BackboneError: it does not.
    """
    if not hasattr(backbone, "group_matcher"):
        name = type(backbone).__name__
        raise BackboneError(f"layer_decay needs a backbone with a group_matcher; {name} has none")


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

    require_layers(trainee.backbone)
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

"""Backbones from timm, made as a run describes them."""

from typing import Any

from torch import nn

from ...jobs.run.settings import BackboneSettings, HeadSettings, ModelShape
from ..errors import BackboneError
from .own import build_own, own_arguments
from .projector import replace_classifier, widen_classifier
from .segmenter import WIDTH, Segmenter
from .tokens import Grid

# Our own argument beside timm's: the deviation of the class token's start.
CLASS_TOKEN_STD = "class_token_std"


def create_arguments(backbone: BackboneSettings, shape: ModelShape) -> dict[str, Any]:
    """Return what timm's create_model is called with, the model's name left out; or a lab's own
    function.
    """
    if backbone.source is not None:
        return own_arguments(backbone, shape)
    import timm

    from .. import models  # noqa: F401  registers ours with timm

    arguments = {key: value for key, value in backbone.args.items() if key != CLASS_TOKEN_STD}
    arguments |= {"num_classes": shape.classes, "in_chans": shape.channels}
    config = timm.get_pretrained_cfg(backbone.model)
    if shape.task != "classification" and _is_swin(backbone.model):
        # Whole images are scored, whatever their sides.
        arguments["strict_img_size"] = False
    if config is not None and config.fixed_input_size:
        arguments["img_size"] = shape.image_size
    if shape.dropout is not None:
        arguments["drop_rate"] = shape.dropout
    if shape.drop_path is not None:
        arguments["drop_path_rate"] = shape.drop_path
    return arguments


def _is_swin(name: str) -> bool:
    import timm

    return timm.model_entrypoint(name).__module__ == "timm.models.swin_transformer"


def build(
    backbone: BackboneSettings, shape: ModelShape, head: HeadSettings | None = None
) -> nn.Module:
    """Make the model, drawing its weights from torch's default generator.

    For masks it is a `Segmenter` around the backbone, for objects a `Detector`.

    Args:
        backbone: of the run.
        shape: what the model is made for.
        head: what it asks of the model: no positional embedding, another input size, no classifier
            or a projector in its place.

    Raises:
        BackboneError: timm refuses, in timm's words, or the head asks for what the model has not.
        OwnPartError: a lab's own backbone is none.
    """
    name = backbone.model
    if backbone.source is not None:
        model = build_own(backbone, shape)
    else:
        model = _from_timm(name, create_arguments(backbone, shape))
    if (deviation := backbone.args.get(CLASS_TOKEN_STD)) is not None:
        _start_class_token(model, name, deviation)
    if shape.drop_path_rule == "uniform":
        usual = backbone.args.get("drop_path_rate")
        _drop_evenly(model, usual if shape.drop_path is None else shape.drop_path)
    if head is not None:
        _follow_head(model, name, shape, head)
    if shape.classifier == "mlp" and (head is None or head.shared.labels):
        widen_classifier(model, name)
    if shape.task == "segmentation":
        return Segmenter(
            model,
            classes=shape.classes,
            channels=shape.channels,
            size=shape.image_size,
            width=shape.decoder_width or WIDTH,
        )
    if shape.task == "detection":
        # torchvision is imported where it is needed alone.
        from . import detector

        return detector.Detector(
            model,
            classes=shape.classes,
            channels=shape.channels,
            size=shape.image_size,
            width=shape.decoder_width or detector.WIDTH,
            any_size=shape.longest_side is not None,
        )
    return model


def _from_timm(name: str, arguments: dict[str, Any]) -> nn.Module:
    import timm

    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **arguments)
    except (RuntimeError, TypeError, ValueError, AssertionError, AttributeError) as error:
        text = str(error).split("\n")[0] or type(error).__name__
        raise BackboneError(f"backbone {name}: {text}") from error
    return model


def _start_class_token(model: nn.Module, name: str, deviation: float) -> None:
    """Start the class token from a truncated normal distribution of this deviation."""
    # Of a PatchConvNet with a token for each class, they are in its head.
    own = getattr(getattr(model, "head", None), "tokens", None)
    token = getattr(model, "cls_token", own)
    if not isinstance(token, nn.Parameter):
        raise BackboneError(f"backbone {name}: {CLASS_TOKEN_STD}: it has no class token")
    if not token.is_meta:
        nn.init.trunc_normal_(token, std=deviation)


def not_decayed(model: nn.Module) -> set[str]:
    """Return the parameters that take no weight decay beside biases and one-dimensional ones.

    Timm stores the gains and shifts of `Affine`, ResMLP's norm, as [1, 1, D], where its rule for
    one-dimensional parameters misses them.
    """
    from timm.models.mlp_mixer import Affine

    named: set[str] = set(getattr(model, "no_weight_decay", set)())
    for name, layer in model.named_modules():
        if isinstance(layer, Affine):
            named |= {f"{name}.{parameter}" for parameter, _ in layer.named_parameters()}
    return named


def _follow_head(model: Any, name: str, shape: ModelShape, head: HeadSettings) -> None:
    """Change a model as its head asks."""
    shared = head.shared
    if not shared.positions:
        if getattr(model, "pos_embed", None) is None:
            raise BackboneError(f"backbone {name}: it has no positional embedding to remove")
        # Made and dropped: without it timm would draw all other weights anew.
        model.pos_embed = None
    if shared.mega is not None:
        _shrink(model, name, shape.image_size, shared.mega)
    if (distillation := head.distillation) is not None:
        from .students import prepare_student

        prepare_student(model, distillation)
    if (grafit := head.grafit) is not None and not grafit.labels:
        replace_classifier(model, name, grafit)
    elif not shared.labels:
        if not hasattr(model, "reset_classifier"):
            raise BackboneError(f"backbone {name}: its classifier cannot be removed")
        model.reset_classifier(0)


def _drop_evenly(model: nn.Module, rate: float | None) -> None:
    """Drop the branches of every block at one rate, the largest where none is given.

    Timm lets it grow with the depth.

    Class attention has none (thesis, section 3.5.2).
    """
    from timm.layers import DropPath
    from timm.models.cait import LayerScaleBlockClassAttn

    if rate is None:
        rate = max(
            (layer.drop_prob for layer in model.modules() if isinstance(layer, DropPath)),
            default=0.0,
        )
    for layer in model.modules():
        for name in ("drop_path", "drop_path1", "drop_path2"):
            spared = isinstance(layer, LayerScaleBlockClassAttn)
            if isinstance(getattr(layer, name, None), DropPath | nn.Identity) and not spared:
                setattr(layer, name, DropPath(rate) if rate else nn.Identity())


def _shrink(model: Any, name: str, size: int, mega: int) -> None:
    """Let a model take M×M patches."""
    patch = patch_side(model, size)
    if patch is None or not hasattr(model, "set_input_size"):
        raise BackboneError(f"backbone {name}: mega-patches need a transformer over square patches")
    if mega > size // patch:
        raise BackboneError(
            f"backbone {name}: mega is {mega}, but {size}-pixel images have {size // patch} patches"
            " a side"
        )
    try:
        model.set_input_size(img_size=(mega * patch, mega * patch))
    # Whatever windows raise that are larger than M×M patches; which do depends on timm's version.
    except (AssertionError, RuntimeError, ValueError) as error:
        raise BackboneError(f"backbone {name}: mega-patches need one token per patch") from error


def patch_side(model: Any, size: int) -> int | None:
    """Return the side of a patch that divides the image, or None where the model has none."""
    sides = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    side = sides[0] if isinstance(sides, tuple) else None
    return int(side) if side and size % side == 0 else None


def cell_side(head: HeadSettings, name: str, grid: Grid, side: int) -> int | None:
    """Return the side of the square of pixels that a token stands for.

    None where the head does nothing to patches.

    Raises:
        BackboneError: the tokens stand for no squares, and the head shuffles or changes such.
    """
    shared = head.shared
    if not shared.changes_patches:
        return None
    if shared.mega not in (None, grid.height):
        raise BackboneError(
            f"backbone {name}: mega-patches need one token per patch, but it merges them"
        )
    if grid.height != grid.columns or side % grid.height:
        size = f"{grid.height}x{grid.columns}"
        raise BackboneError(
            f"backbone {name}: image size {side} cannot be divided into {size} square patches"
        )
    return side // grid.height


def input_side(head: HeadSettings, model: Any, size: int) -> int:
    """Return the side of the images that the model gets, pixels."""
    mega = head.shared.mega
    return size if mega is None else mega * (patch_side(model, size) or 1)


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the layers that keep running statistics of the batch."""
    return [
        layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ]

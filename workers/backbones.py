"""Backbones from timm: made as a run describes them, and their weights."""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .heads.base import Grid
from .tokens import BackboneError


def create_arguments(backbone: dict[str, Any], dataset: dict[str, Any], recipe: dict[str, Any]) -> dict[str, Any]:
    """Return what timm's create_model is called with, the model's name left out."""
    import timm

    from . import models  # noqa: F401  registers ours with timm

    arguments = dict(backbone["args"])
    arguments |= {"num_classes": dataset["classes"], "in_chans": dataset["channels"]}
    config = timm.get_pretrained_cfg(backbone["model"])
    if config is not None and config.fixed_input_size:
        arguments["img_size"] = recipe["image_size"]
    if recipe.get("dropout") is not None:
        arguments["drop_rate"] = recipe["dropout"]
    if recipe.get("drop_path") is not None:
        arguments["drop_path_rate"] = recipe["drop_path"]
    return arguments


def build(
    backbone: dict[str, Any], dataset: dict[str, Any], recipe: dict[str, Any], head: dict[str, Any] | None = None
) -> nn.Module:
    """Make the model, drawing its weights from torch's default generator.

    Args:
        backbone: of the run, as the other parts.
        dataset: its classes and channels.
        recipe: image size and regularisation.
        head: what it asks of the model: no positional embedding, another input size, no classifier.

    Raises:
        BackboneError: timm refuses, in timm's words, or the head asks for what the model has not.
    """
    import timm

    name, params = backbone["model"], (head or {}).get("params", {})
    arguments = create_arguments(backbone, dataset, recipe)
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **arguments)
    except (RuntimeError, TypeError, ValueError, AssertionError, AttributeError) as error:
        text = str(error).split("\n")[0] or type(error).__name__
        raise BackboneError(f"backbone {name}: {text}") from error
    if recipe.get("drop_path_rule") == "uniform":
        _drop_evenly(model, arguments.get("drop_path_rate", 0.0))
    if not params.get("positions", True):
        if getattr(model, "pos_embed", None) is None:
            raise BackboneError(f"backbone {name}: it has no positional embedding to leave out")
        # Made and dropped: without it timm would draw all other weights anew.
        model.pos_embed = None
    if params.get("mega") is not None:
        _shrink(model, name, recipe["image_size"], params["mega"])
    if head is not None and head.get("name") == "distill":
        from .distill import prepare_student

        prepare_student(model, head)
    if not params.get("labels", True):
        if not hasattr(model, "reset_classifier"):
            raise BackboneError(f"backbone {name}: its classifier cannot be left out")
        model.reset_classifier(0)
    return model


def _drop_evenly(model: nn.Module, rate: float) -> None:
    """Drop every block's branches at one rate, where timm lets it grow with the depth."""
    from timm.layers import DropPath

    for layer in model.modules():
        for name in ("drop_path", "drop_path1", "drop_path2"):
            if isinstance(getattr(layer, name, None), DropPath | nn.Identity):
                setattr(layer, name, DropPath(rate) if rate else nn.Identity())


def _shrink(model: Any, name: str, size: int, mega: int) -> None:
    """Let a model take M×M patches."""
    patch = patch_side(model, size)
    if patch is None or not hasattr(model, "set_input_size"):
        raise BackboneError(f"backbone {name}: mega-patches need a transformer over square patches")
    if mega > size // patch:
        raise BackboneError(
            f"backbone {name}: {mega} mega-patches a side, {size}-pixel images have {size // patch} patches"
        )
    model.set_input_size(img_size=(mega * patch, mega * patch))


def patch_side(model: Any, size: int) -> int | None:
    """Return the side of a patch that divides the image, or None where the model has none."""
    sides = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    side = sides[0] if isinstance(sides, tuple) else None
    return int(side) if side and size % side == 0 else None


def cell_side(head: dict[str, Any], name: str, grid: Grid, side: int) -> int | None:
    """Return the side of the square of pixels that a token stands for; None where the head does nothing to patches.

    Raises:
        BackboneError: the tokens stand for no squares, and the head shuffles or changes such.
    """
    params = head["params"]
    if not (params.get("shuffle") or params.get("patch_augment") or params.get("mega")):
        return None
    if params.get("mega") not in (None, grid.height):
        raise BackboneError(f"backbone {name}: mega-patches need a token for each patch, not merged ones")
    if grid.height != grid.columns or side % grid.height:
        size = f"{grid.height}x{grid.columns}"
        raise BackboneError(f"backbone {name}: {side} pixels are no whole number of patches for its {size} tokens")
    return side // grid.height


def input_side(head: dict[str, Any], model: Any, size: int) -> int:
    """Return the side of the images that the model gets, pixels."""
    mega = head["params"].get("mega")
    return size if mega is None else mega * (patch_side(model, size) or 1)


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Load weights from a safetensors file (or a weights-only torch file); return the names left as they were.

    Positions of another image size are interpolated (bicubic); a classifier of other classes is left out.

    Raises:
        BackboneError: the file cannot be read, nothing in it fits, or a trained tensor has another shape.
    """
    state = read_weights(path)
    own = model.state_dict()
    if any(name not in own or own[name].shape != value.shape for name, value in state.items()):
        state = _resampled(model, state)
        _check_shapes(model, state, path)
    fitting = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise BackboneError(f"weights {path}: no tensor fits the backbone")
    model.load_state_dict(fitting, strict=False)
    return sorted(set(own) - set(fitting))


def _resampled(model: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring names to the model's own, and positional embeddings and relative position tables to its grid.

    Most of timm's families have a function for that beside them, which timm calls on the weights that it publishes.
    """
    from timm.layers import resample_abs_pos_embed

    adapt = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    found = dict(adapt(state, model) if adapt is not None else state)
    own, given = getattr(model, "pos_embed", None), found.get("pos_embed")
    if own is not None and given is not None and own.requires_grad and own.shape != given.shape:
        grid = model.patch_embed.grid_size
        prefix = own.shape[1] - grid[0] * grid[1]
        found["pos_embed"] = resample_abs_pos_embed(given, new_size=list(grid), num_prefix_tokens=prefix)
    return found


def _check_shapes(model: Any, state: dict[str, Tensor], path: Path) -> None:
    classifier = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    free = tuple(f"{name}." for name in ((classifier,) if isinstance(classifier, str) else classifier))
    for name, own in model.named_parameters():
        given = state.get(name)
        if given is None or given.shape == own.shape or not own.requires_grad or name.startswith(free or ("\0",)):
            continue
        sizes = f"{'x'.join(map(str, given.shape))}, the backbone's is {'x'.join(map(str, own.shape))}"
        raise BackboneError(f"weights {path}: {name} is {sizes}")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a file of named tensors without running anything in it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(str(path))
        # timm and what follows it save the options of their command line beside the weights.
        with torch.serialization.safe_globals([argparse.Namespace]):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BackboneError(f"weights {path}: cannot be read ({error})") from error
    except Exception as error:  # pickle's own errors; weights_only refuses objects with one of them
        raise BackboneError(f"weights {path}: refused, not a weights-only file") from error
    wrapped = next((found[name] for name in ("state_dict_ema", "model", "state_dict") if name in found), found)
    state: dict[str, Tensor] = wrapped
    return state


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the layers that keep running statistics of the batch."""
    return [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]

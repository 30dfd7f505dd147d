"""Backbones from timm, and the grid of patch tokens that their last features form."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..jobs.errors import VtjobsError


class BackboneError(VtjobsError):
    """timm cannot make this backbone, or its features form no grid."""

    exit_code = 2


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


def build(backbone: dict[str, Any], dataset: dict[str, Any], recipe: dict[str, Any]) -> nn.Module:
    """Make the model, drawing its weights from torch's default generator.

    Raises:
        BackboneError: timm refuses, in timm's words.
    """
    import timm

    arguments = create_arguments(backbone, dataset, recipe)
    try:
        model: nn.Module = timm.create_model(backbone["model"], pretrained=False, **arguments)
    except (RuntimeError, TypeError, ValueError, AssertionError, AttributeError) as error:
        text = str(error).split("\n")[0] or type(error).__name__
        raise BackboneError(f"backbone {backbone['model']}: {text}") from error
    return model


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Load weights from a safetensors file (or a weights-only torch file); return the names left as they were.

    Tensors of another shape, such as the classifier of another number of classes, are left out.

    Raises:
        BackboneError: the file cannot be read, or nothing in it fits.
    """
    state = read_weights(path)
    own = model.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise BackboneError(f"weights {path}: no tensor fits the backbone")
    model.load_state_dict(fitting, strict=False)
    return sorted(set(own) - set(fitting))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a file of named tensors without running anything in it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(str(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise BackboneError(f"weights {path}: cannot be read ({error})") from error
    except Exception as error:  # pickle's own errors; weights_only refuses objects with one of them
        raise BackboneError(f"weights {path}: refused, not a weights-only file") from error
    state: dict[str, Tensor] = found.get("model", found.get("state_dict", found))
    return state


def token_grid(model: nn.Module, features: Tensor) -> Tensor:
    """Return the patch tokens of `forward_features` as [B, h, w, D]; class and register tokens are dropped.

    Raises:
        BackboneError: the features form no grid.
    """
    width = getattr(model, "num_features", None)
    if features.ndim == 4:
        if features.shape[3] == width and features.shape[1] != width:
            return features
        if getattr(model, "output_fmt", "NCHW") == "NHWC":
            return features
        return features.permute(0, 2, 3, 1)
    if features.ndim == 3:
        tokens = features[:, int(getattr(model, "num_prefix_tokens", 0)) :]
        height, columns = _grid_size(model, tokens.shape[1])
        return tokens.unflatten(1, (height, columns))
    raise BackboneError(f"features of shape {tuple(features.shape)} form no grid of tokens")


def _grid_size(model: nn.Module, count: int) -> tuple[int, int]:
    known = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if known is not None and known[0] * known[1] == count:
        return int(known[0]), int(known[1])
    side = round(count**0.5)
    if side * side != count:
        raise BackboneError(f"{count} tokens form no square grid")
    return side, side


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the layers that keep running statistics of the batch."""
    return [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]

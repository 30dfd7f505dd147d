"""Weights from files: read without running anything in them, and fitted to a model."""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BackboneError

# What a function that adapts weights raises on such as it does not know.
_UNFIT = (RuntimeError, AttributeError, KeyError, IndexError, TypeError, ValueError, AssertionError)


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Load weights from a safetensors file (or a weights-only torch file).

    Return the names left as they were.

    Positions of another image size are interpolated (bicubic); a classifier of other classes is
    left out.

    Raises:
        BackboneError: the file cannot be read, nothing in it fits, or a trained tensor has another
            shape.
    """
    fitting = fit(model, read_weights(path), f"weights {path}")
    model.load_state_dict(fitting, strict=False)
    return sorted(set(model.state_dict()) - set(fitting))


def fit(model: nn.Module, state: dict[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return what of some weights a model takes, in its own names and shapes.

    Args:
        model: whose weights they shall be.
        state: name -> tensor.
        what: what they are called in an error.

    Raises:
        BackboneError: nothing fits, or a trained tensor has another shape.
    """
    own = model.state_dict()
    if any(name not in own or own[name].shape != value.shape for name, value in state.items()):
        try:
            state = _adapted(model, state)
        except _UNFIT as error:
            why = str(error).split("\n")[0]
            raise BackboneError(
                f"{what}: cannot be loaded into {type(model).__name__} ({why})"
            ) from error
        _check_shapes(model, state, what)
    fitting = {
        name: value
        for name, value in state.items()
        if name in own and own[name].shape == value.shape
    }
    if not fitting:
        raise BackboneError(f"{what}: no tensor fits the backbone")
    return fitting


def _adapted(model: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring names to the model's own, and positional embeddings and relative position tables to its
    grid.

    Most of timm's families have a function for that beside them, which timm calls on the weights
    that it publishes.
    """
    from timm.layers import resample_abs_pos_embed

    adapt = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    found = dict(adapt(state, model) if adapt is not None else state)
    own, given = getattr(model, "pos_embed", None), found.get("pos_embed")
    if own is not None and given is not None and own.requires_grad and own.shape != given.shape:
        grid = model.patch_embed.grid_size
        prefix = own.shape[1] - grid[0] * grid[1]
        found["pos_embed"] = resample_abs_pos_embed(
            given, new_size=list(grid), num_prefix_tokens=prefix
        )
    return found


def _check_shapes(model: Any, state: dict[str, Tensor], what: str) -> None:
    found = model.get_classifier() if hasattr(model, "get_classifier") else None
    classifiers = found if isinstance(found, tuple | list) else (found,)
    free = {
        id(tensor)
        for part in classifiers
        if isinstance(part, nn.Module)
        for tensor in part.parameters()
    }
    for name, own in model.named_parameters():
        given = state.get(name)
        if given is None or given.shape == own.shape or not own.requires_grad or id(own) in free:
            continue
        theirs, ours = ("x".join(map(str, tensor.shape)) for tensor in (given, own))
        raise BackboneError(f"{what}: {name} has shape {theirs}, the backbone expects {ours}")


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
    except (
        SafetensorError,
        RuntimeError,
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
    ) as error:
        raise BackboneError(f"weights {path}: cannot be read ({error})") from error
    except Exception as error:  # pickle's own errors; weights_only refuses objects with one of them
        raise BackboneError(f"weights {path}: refused, not a weights-only file") from error
    if isinstance(found, dict):
        found = next(
            (found[name] for name in ("state_dict_ema", "model", "state_dict") if name in found),
            found,
        )
    if not isinstance(found, dict) or not all(
        isinstance(value, Tensor) for value in found.values()
    ):
        raise BackboneError(f"weights {path}: not a dictionary of named tensors")
    return found

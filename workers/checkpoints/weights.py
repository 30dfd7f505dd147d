"""Weights from files: read without running anything in them, and fitted to a model."""

import argparse
import fnmatch
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...jobs.run.settings import Weights
from ...jobs.workspace.events import LoadedWeights
from ..errors import BackboneError

# What a function that adapts weights raises on such as it does not know.
_UNFIT = (RuntimeError, AttributeError, KeyError, IndexError, TypeError, ValueError, AssertionError)


# Under which keys programs save the weights, the first that is there: averaged ones before others.
_INSIDE = ("state_dict_ema", "model_ema", "model", "state_dict")
# In the names of a projector's weights: it stands in the classifier's place in runs of grafit.
PROJECTOR = ".grafit_projector."
# What programs put before the names of a model's weights, most often for all of them.
_PREFIXES = ("module.", "_orig_mod.", "model.", "ema_model.", "ema.", "backbone.", "encoder.")


def start_from(model: nn.Module, weights: Weights, path: Path) -> LoadedWeights:
    """Load a file of weights that a grid names into a new model, whole.

    Positions of another image size are interpolated (bicubic). A classifier may be of other classes
    or missing. What else is missing in the file, or no part of the model, must be named in the
    grid: a model that starts half from its file and half from noise is nobody's baseline.

    Raises:
        BackboneError: the file cannot be read, a trained tensor has another shape, or a tensor is
            missing or unused without being named.
    """
    what = f"weights {path}"
    given = _without_prefixes(read_weights(path), model)
    named = (*weights.allow_missing, *weights.allow_unused)
    fitting, adapted = _matched(model, given, what, free=named)
    classifier = _classifier(model)
    drawn = sorted(set(model.state_dict()) - set(fitting))
    unused = sorted(set(adapted) - set(fitting))
    for names, allowed, key, problem in (
        (drawn, weights.allow_missing, "allow_missing", "the model's {} not in the file"),
        (unused, weights.allow_unused, "allow_unused", "the file's {} no part of the model"),
    ):
        left = [name for name in names if not _is_named(name, (*classifier, *allowed))]
        if left:
            text = problem.format(f"{_some(left)} {'is' if len(left) == 1 else 'are'}")
            setting = f"{key}: [{', '.join(_patterns(left))}]"
            raise BackboneError(f"{what}: {text}. If that is meant, set {setting} beside weights")
    model.load_state_dict(fitting, strict=False)
    return LoadedWeights(loaded=len(fitting), drawn=drawn, unused=unused)


def load_weights(model: nn.Module, path: Path, *, only: Sequence[str] = ()) -> list[str]:
    """Load weights of a run, or a teacher's, from a safetensors file or a weights-only torch file.

    Return the names left as they were.

    Positions of another image size are interpolated (bicubic); a classifier of other classes is
    left out.

    Args:
        model: whose weights they become.
        path: of the file.
        only: patterns of the names that are taken; without any, all are.

    Raises:
        BackboneError: the file cannot be read, nothing in it fits, a trained tensor has another
            shape, or a pattern names nothing that fits.
    """
    what = f"weights {path}"
    fitting = taken(fit(model, read_weights(path), what), only, what)
    model.load_state_dict(fitting, strict=False)
    return sorted(set(model.state_dict()) - set(fitting))


def taken(fitting: dict[str, Tensor], only: Sequence[str], what: str) -> dict[str, Tensor]:
    """Return the weights that a recipe's `init_only` names; without any, all of them.

    Args:
        fitting: what a model can take.
        only: patterns of names.
        what: the weights are called in an error.

    Raises:
        BackboneError: a pattern names none of them.
    """
    for pattern in only:
        if not fnmatch.filter(fitting, pattern):
            raise BackboneError(
                f"init_only: {what} have nothing named {pattern!r} that the model can take; they"
                f" have {_some(list(fitting))}"
            )
    return {name: value for name, value in fitting.items() if not only or _is_named(name, only)}


def fit(model: nn.Module, state: dict[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return what of some weights a model takes, in its own names and shapes.

    Args:
        model: whose weights they shall be.
        state: name -> tensor.
        what: what they are called in an error.

    Raises:
        BackboneError: nothing fits, or a trained tensor has another shape.
    """
    return _matched(model, _without_foreign_projector(model, state), what)[0]


def _without_foreign_projector(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a run without its projector, unless the model has the same one."""
    own = model.state_dict()
    projector = {name: one for name, one in state.items() if PROJECTOR in name}
    if all(name in own and own[name].shape == one.shape for name, one in projector.items()):
        return state
    return {name: one for name, one in state.items() if name not in projector}


def _matched(
    model: nn.Module, state: dict[str, Tensor], what: str, *, free: Sequence[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what of some weights a model takes, and all of them in the model's own names.

    Tensors with a name in `free` may have another shape: they are left out.
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
        _check_shapes(model, state, what, free)
    fitting = {
        name: value
        for name, value in state.items()
        if name in own and own[name].shape == value.shape
    }
    if not fitting:
        raise BackboneError(f"{what}: no tensor fits the backbone")
    return fitting, state


def _without_prefixes(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return weights without what stands before every name and before none of the model's."""
    own = model.state_dict()
    foreign = [one for one in _PREFIXES if not any(name.startswith(one) for name in own)]
    while state:
        prefix = next((one for one in foreign if all(name.startswith(one) for name in state)), "")
        if not prefix:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _classifier(model: Any) -> tuple[str, ...]:
    """Return patterns of the names of a model's classifier, also where it has been removed."""
    named = getattr(model, "pretrained_cfg", {}).get("classifier") or ()
    names = [named] if isinstance(named, str) else list(named)
    if hasattr(model, "get_classifier"):
        found = model.get_classifier()
        parts = found if isinstance(found, tuple | list) else (found,)
        ids = {id(part) for part in parts if isinstance(part, nn.Module)}
        names += [name for name, module in model.named_modules() if id(module) in ids]
    return tuple(f"{name}.*" for name in dict.fromkeys(names))


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _patterns(names: Sequence[str]) -> list[str]:
    """Return patterns for some names: the first part of each, where it has several."""
    heads = dict.fromkeys(name.partition(".")[0] for name in names)
    return [head if head in names else f"{head}.*" for head in heads]


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


def _check_shapes(
    model: Any, state: dict[str, Tensor], what: str, named: Sequence[str] = ()
) -> None:
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
        if _is_named(name, named):
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
            (found[name] for name in _INSIDE if name in found and isinstance(found[name], dict)),
            found,
        )
    if not isinstance(found, dict) or not all(
        isinstance(value, Tensor) for value in found.values()
    ):
        raise BackboneError(f"weights {path}: not a dictionary of named tensors")
    return found

"""The records about factors on the branches of a DeiT-S, of the thesis.

Tables 3.11, 3.12 and 3.20, and the text of section 3.5.3.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...jobs.values import Value
from .published import Published

# The model that has all of them as arguments.
BACKBONE = "deit_s_scaled"
# A record's method -> which factors its model has.
METHODS = {
    "baseline_fixed_drop": "none",
    "baseline_adjusted_drop": "none",
    "rezero": "branch",
    "scalar_alpha_eps": "branch",
    "layerscale": "channel",
    "layerscale_refit_fixed_weights": "channel",
}
# That of them whose factors are learned by one run and then frozen in another (section 3.5.3).
FIXED = "layerscale_refit_fixed_weights"
# How a record of table 3.12 says where the factors start.
_DRAWN = "uniform_0_2eps"
# Of a DeiT-S.
_HEADS = 6


def are_factors(patterns: Sequence[str]) -> bool:
    """Whether patterns of names name the factors of the branches and nothing else."""
    return bool(patterns) and all(pattern.endswith("ls?.gamma") for pattern in patterns)


def is_of(args: Mapping[str, Any], record: Published) -> bool:
    """Whether a model is a record's.

    Args:
        args: of the model, without those that it has by itself.
        record: with one of the methods above.
    """
    found = _Factors.of(args)
    if found.depth != record.variant.get("depth") or found.scale != METHODS[record.method]:
        return False
    # Those of table 3.20 have other heads.
    if found.heads != _HEADS or found.talks:
        return False
    if found.scale == "none":
        return found.drop_path == record.variant.get("drop_path")
    starts_at_zero = record.method == "rezero" or record.variant.get("init") == "zero"
    return (
        (found.init == 0) == starts_at_zero
        and found.is_drawn == (record.variant.get("init") == _DRAWN)
        and record.variant.get("eps") in (None, found.init)
    )


def step(backbone: str, args: Mapping[str, Any]) -> int | None:
    """Return which step of table 3.20 a model is, from DeiT-S to CaiT-S36; None: it is none.

    Args:
        backbone: its short name, settings in brackets do not count.
        args: of the model.
    """
    name = backbone.partition("(")[0]
    found = _Factors.of(args)
    if name == "deit_s":
        is_plain = args.get("class_token", True)
        return {_HEADS: 0, 8: 1}.get(found.heads) if is_plain else None
    if name != BACKBONE:
        return 6 if name == "cait_s36" else None
    if found.heads != 8 or not found.talks or found.is_drawn or found.scale == "branch":
        return None
    if found.scale == "none":
        return {12: 2, 36: 3}.get(found.depth)
    if (found.depth, found.init) != (36, 1e-6):
        return None
    return 5 if found.drop_path == 0.2 else 4


class _Factors(Value, frozen=True):
    """What a DeiT-S of these tables has."""

    depth: int
    heads: int
    talks: bool
    scale: str
    init: float
    is_drawn: bool
    drop_path: float | None

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> "_Factors":
        """Read the arguments of a model; those that are not there are its own."""
        return cls(
            depth=args.get("depth", 12),
            heads=args.get("num_heads", _HEADS),
            talks=args.get("talking_heads", False),
            scale=args.get("scale", "channel"),
            init=args.get("scale_init", 0.1),
            is_drawn=args.get("scale_start") == "uniform",
            drop_path=args.get("drop_path_rate"),
        )

"""The records about factors on the branches of a DeiT-S: tables 3.11, 3.12 and 3.20 of the thesis.

Pure.
"""

from collections.abc import Mapping
from typing import Any

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
}
# How a record of table 3.12 says where the factors start.
_DRAWN = "uniform_0_2eps"
# Without it, as the model has it.
_DEPTH, _SCALE, _INIT = 12, "channel", 0.1


def is_of(args: Mapping[str, Any], record: Published) -> bool:
    """Whether a model is a record's.

    Args:
        args: of the model, without those that it has by itself.
        record: with one of the methods above.
    """
    scale, init = args.get("scale", _SCALE), args.get("scale_init", _INIT)
    if args.get("depth", _DEPTH) != record.variant.get("depth") or scale != METHODS[record.method]:
        return False
    if scale == "none":
        return bool(args.get("drop_path_rate") == record.variant.get("drop_path"))
    starts_at_zero = record.method == "rezero" or record.variant.get("init") == "zero"
    is_drawn = args.get("scale_start") == "uniform"
    return (
        (init == 0) == starts_at_zero
        and is_drawn == (record.variant.get("init") == _DRAWN)
        and record.variant.get("eps") in (None, init)
    )


def step(backbone: str, args: Mapping[str, Any]) -> int:
    """Return which step of table 3.20 a model is, from DeiT-S to CaiT-S36.

    Args:
        backbone: its short name, settings in brackets do not count.
        args: of the model.
    """
    name = backbone.partition("(")[0]
    if name != BACKBONE:
        return 6 if name.startswith("cait") else int(args.get("num_heads") == 8)
    if args.get("scale", _SCALE) == "none":
        return 3 if args.get("depth", _DEPTH) == 36 else 2
    return 5 if args.get("drop_path_rate") == 0.2 else 4

"""Small grids that train in seconds."""

from pathlib import Path

# Epochs of a run that does not end by itself within a test.
ENDLESS = 100_000
# With it an epoch takes two tenths of a second, asleep: what a test waits for takes no core from what
# it tests. A metric is no part of a run's id, and changes none of its weights.
SLOW = 'data: {metrics: ["nap.py:nap"]}'
_NAP = """\
import time


def nap(logits, labels):
    # Called for the model, and for the average of its weights.
    time.sleep(0.1)
    return 0.0
"""
TINY_BACKBONE = "vit_small_patch16_224: {patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}"


def tiny_grid(
    *,
    name: str = "tiny",
    heads: str = "[supervised]",
    seeds: str = "2",
    epochs: int = 2,
    train: str = "",
    extra: str = "",
    slow: bool = False,
) -> str:
    """Return a grid whose runs take about a second each, once the template is warm."""
    changes = ", ".join(
        part for part in (f"epochs: {epochs}", "warmup_epochs: 0", "batch_size: 128", train) if part
    )
    return f"""\
name: {name}
backbones:
  - {TINY_BACKBONE}
datasets: [digits]
heads: {heads}
seeds: {seeds}
recipe: quickstart
train: {{{changes}}}
resources: {{gpus_per_node: 0}}
{slow_line(epochs, slow)}
{extra}
"""


def slow_line(epochs: int, slow: bool) -> str:
    """Return the line that makes epochs slow: also where a run is only to be there."""
    return SLOW if slow or epochs == ENDLESS else ""


def write_grid(path: Path, text: str) -> None:
    """Write a grid file, and what it names beside it."""
    path.write_text(text)
    if SLOW in text:
        (path.parent / "nap.py").write_text(_NAP)

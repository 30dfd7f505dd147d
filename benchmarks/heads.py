"""What each head costs beside the supervised step.

`python benchmarks/heads.py [--backbone swin_t] [--batch 16]`.

Each head's forward and backward pass on the backbone's tokens, as a share of a supervised step:
medians, interleaved in one process, so that a busy machine slows all of them alike (a step with a
head less one without is a small difference of two large numbers). Two more rows: DRLoc's head
against the published form, which gathers and concatenates first.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtjobs.jobs.grid.catalogue import backbones
from vtjobs.jobs.grid.heads import HEADS, preset
from vtjobs.workers.heads.base import build_head
from vtjobs.workers.heads.drloc import DRLoc
from vtjobs.workers.models.tokens import Grid, Tap, grid_shapes

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "drloc": ("drloc", {}),
    "relvit sprel+abspos, low rank": ("relvit", {"rank": "low"}),
    "relvit sprel+abspos, full rank": ("relvit", {"rank": "full"}),
    "relvit all four, low rank": (
        "relvit",
        {"rank": "low", "tasks": ["sprel", "dist", "ang", "abspos"]},
    ),
    "relvit all four, full rank": (
        "relvit",
        {"rank": "full", "tasks": ["sprel", "dist", "ang", "abspos"]},
    ),
}


class Published(nn.Module):
    """DRLoc's head as its authors wrote it.

    Rows gathered image by image, concatenated, then the MLP.
    """

    def __init__(self, width: int, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs
        self.mlp = nn.Sequential(
            nn.Linear(2 * width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        batch, side, _, width = tokens.shape
        flat = tokens.reshape(batch, side * side, width)
        ends = torch.randint(side, (2, batch, self.pairs, 2))
        picked = [
            torch.stack(
                [
                    image[cells[:, 0] * side + cells[:, 1]]
                    for image, cells in zip(flat, end, strict=True)
                ]
            )
            for end in ends
        ]
        target = (ends[0] - ends[1]).abs().float()
        return F.l1_loss(self.mlp(torch.cat(picked, dim=2)), target)


class Gathered(Published):
    """The same with one gather for the whole batch."""

    def forward(self, tokens: Tensor) -> Tensor:
        batch, side, _, width = tokens.shape
        flat = tokens.reshape(batch * side * side, width)
        ends = torch.randint(side * side, (2, batch, self.pairs))
        base = torch.arange(batch)[:, None] * side * side
        picked = [flat.index_select(0, (base + end).flatten()) for end in ends]
        apart = [(ends[0] // side - ends[1] // side).abs(), (ends[0] % side - ends[1] % side).abs()]
        target = torch.stack(apart, dim=-1).float() / side
        return F.l1_loss(self.mlp(torch.cat(picked, dim=1)).view(batch, self.pairs, 2), target)


def parameters(name: str, changes: dict[str, Any], backbone: dict[str, Any]) -> dict[str, Any]:
    """Return a head's parameters as a run has them."""
    values = HEADS[name].model.model_validate({"weight": 1.0, **changes}).model_dump()
    return values | {
        key: value for key, value in preset(name, "paper", backbone).items() if values[key] is None
    }


def step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Return one supervised training step without the optimizer."""

    def run() -> None:
        F.cross_entropy(model(images), labels).backward()
        model.zero_grad(set_to_none=True)
        wait(images)

    return run


def head_step(head: nn.Module, shape: tuple[int, ...], device: torch.device) -> Callable[[], None]:
    """Return a forward and backward pass of a head, down to the tokens."""
    tokens = torch.randn(shape, device=device, requires_grad=True)

    def run() -> None:
        head([tokens], torch.Generator().manual_seed(0))[0].backward()
        tokens.grad = None
        head.zero_grad(set_to_none=True)
        wait(tokens)

    return run


def alone(head: Callable[[Tensor], Tensor], tokens: Tensor) -> Callable[[], None]:
    """Return a forward and backward pass of a head by itself."""

    def run() -> None:
        head(tokens).backward()

    return run


def wait(tensor: Tensor) -> None:
    if tensor.device.type == "cuda":
        torch.cuda.synchronize()


def measure(cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each case over interleaved rounds."""
    for run in cases.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            began = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Measure, print a table or JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backbone", default="vit_s16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    facts = backbones().get(options.backbone, {"model": options.backbone})
    import vtjobs.workers.models  # noqa: F401  registers ours with timm

    model = timm.create_model(facts["model"], num_classes=100, **facts.get("args", {})).to(device)
    (grid,) = grid_shapes(Tap(model, "after_norm"), 3, 224)
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    cases = {
        "supervised step": step(model, images, torch.randint(100, (options.batch,), device=device))
    }
    for name, (kind, changes) in CASES.items():
        head = build_head({"name": kind, "params": parameters(kind, changes, facts)}, [grid])
        assert head is not None
        cases[name] = head_step(
            head.to(device), (options.batch, grid.height, grid.columns, grid.width), device
        )
    whole = measure(cases, options.rounds)
    second = whole.pop("supervised step")
    tokens = torch.randn(64, 7, 7, 768, requires_grad=True)
    ours = DRLoc([Grid(width=768, height=7, columns=7)], parameters("drloc", {}, {}))
    heads = {
        "published form": alone(Published(768, 64), tokens),
        "gather and concatenate": alone(Gathered(768, 64), tokens),
        "ours": alone(lambda grid: ours([grid], torch.Generator().manual_seed(0))[0], tokens),
    }
    parts = measure(heads, 3 * options.rounds)
    shares = {name: seconds / second for name, seconds in whole.items()}
    over = {name: parts["ours"] / seconds for name, seconds in parts.items() if name != "ours"}
    if options.json:
        print(
            json.dumps(
                {**vars(options), "step_s": second, "share_of_step": shares, "drloc_over": over},
                indent=1,
            )
        )
        return
    print(
        f"{options.backbone}, 224 pixels, batch {options.batch}, {device}: a supervised step takes"
        f" {second:.2f} s"
    )
    for name, share in shares.items():
        print(f"  {name:32} {100 * share:5.2f} % of it")
    for name, ratio in over.items():
        print(f"  drloc's head on 7x7 takes {ratio:.2f} of the {name}")


if __name__ == "__main__":
    main()

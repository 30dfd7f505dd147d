"""Score finished runs' weights without training.

`python -m vtjobs.workers.tools.score --workspace DIR --sets test RUN …`.

The scores go into a journal of their own in the run's folder,
`evaluations/<attempt>-<token>.jsonl`.
"""

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import make_folder
from ...jobs.documents import changed, from_plain
from ...jobs.grid.own_function import METRICS
from ...jobs.run.settings import OwnFunction
from ...jobs.workspace.allocation import DECODED_GIB
from ...jobs.workspace.journal import JournalWriter
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import NoWeights, final_of
from ..randomness import Streams
from .each import each


def score(
    workspace: Workspace,
    run_id: str,
    sets: list[str],
    *,
    data_root: Path,
    paths: dict[str, str],
    decoded_gib: float = DECODED_GIB,
    metrics: Sequence[OwnFunction] = (),
    image_size: int | None = None,
    crop_pct: float | None = None,
) -> dict[str, Any]:
    """Return set -> scores of a run's final weights, and journal them.

    Args:
        workspace: where the run lies.
        run_id: of the run.
        sets: of its dataset.
        data_root: where known datasets lie.
        paths: folders by fingerprint.
        decoded_gib: what the workspace's decoded sets of images may take.
        metrics: of the lab, beside those of vtjobs.
        image_size: another side of the input, pixels; the set is then called `test@256px`.
        crop_pct: another share that the centre crop keeps; `test@crop1`.

    Raises:
        NoWeights: the run has not completed, or its weights are gone or damaged.
        DataError: the dataset is not there.
    """
    import torch

    from ..checkpoints.weights import load_weights
    from ..data.batches import EVAL_BATCH, EvalSource
    from ..data.datasets import load_part
    from ..data.decoded import Decoder
    from ..models.backbones import build
    from ..own_functions import own_metrics
    from ..training.compiled import compiled
    from ..training.evaluate import evaluate
    from ..training.group import Group
    from ..training.trainee import make_numerics

    final = final_of(workspace, run_id)
    spec = final.spec
    if not spec.head.shared.labels:
        raise NoWeights(f"run {run_id} has no classifier: it was trained without labels")
    given = {"image_size": image_size, "eval_crop_pct": crop_pct}
    recipe = changed(
        spec.recipe, **{name: value for name, value in given.items() if value is not None}
    )
    decoder = Decoder(
        folder=workspace.decoded,
        workers=min(16, len(os.sched_getaffinity(0))),
        limit_bytes=int(decoded_gib * 2**30),
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    numerics = make_numerics(
        device, precision=recipe.precision, tf32=recipe.tf32, deterministic=recipe.deterministic
    )
    model = build(spec.backbone, changed(spec, recipe=recipe).shape, spec.head)
    load_weights(model, final.weights)
    model.to(device)
    forward = compiled(model, {EVAL_BATCH}) if recipe.compile else None
    found: dict[str, Any] = {}
    for name in sets:
        split = load_part(spec.dataset, name, Streams(spec.seeds), data_root=data_root, paths=paths)
        source = EvalSource(split, spec.dataset, recipe, device, decoder=decoder)
        group = Group(rank=0, world_size=1, device=device)
        found[_label(name, image_size, crop_pct)] = evaluate(
            model, source, group, numerics, forward=forward, metrics=own_metrics(metrics)
        )
    _journal(workspace.run(run_id).evaluations, final.attempt, final.manifest, found)
    return found


def _label(name: str, image_size: int | None, crop_pct: float | None) -> str:
    parts = [f"{image_size}px"] if image_size is not None else []
    parts += [f"crop{crop_pct:g}"] if crop_pct is not None else []
    return f"{name}@{'-'.join(parts)}" if parts else name


def _journal(folder: Path, attempt: int, manifest: Any, found: dict[str, Any]) -> None:
    make_folder(folder)
    staged = folder / f".{attempt:04d}-{secrets.token_hex(6)}"
    writer = JournalWriter(staged)
    for name, metrics in found.items():
        writer.write(
            "evaluation",
            at=time.time(),
            epoch=manifest.epoch,
            step=manifest.step,
            set=name,
            metrics=metrics,
        )
    writer.close()
    os.rename(staged, folder / f"{staged.name[1:]}.jsonl")


def _line(run_id: str, set_name: str, metrics: dict[str, float]) -> str:
    own = "".join(f"  {name} {value:.4g}" for name, value in metrics.items() if name not in METRICS)
    main = f"top1 {metrics['top1']:.2f}  loss {metrics['loss']:.4f}{own}"
    return f"{run_id} {set_name}: {main}  n {metrics['n']:.0f}"


def main() -> int:
    """Score each run; print a line per run and set."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.score")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--decoded-gib", type=float, default=DECODED_GIB)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--paths", default="{}")
    parser.add_argument("--sets", required=True)
    # Read as JSON from standard input.
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--crop-pct", type=float)
    parser.add_argument("run_ids", nargs="+")
    options = parser.parse_args()
    metrics = from_plain(json.load(sys.stdin) if options.metrics else [], list[OwnFunction])

    def tell(run_id: str) -> str:
        found = score(
            Workspace(options.workspace),
            run_id,
            options.sets.split(","),
            data_root=options.data,
            paths=json.loads(options.paths),
            decoded_gib=options.decoded_gib,
            metrics=metrics,
            image_size=options.image_size,
            crop_pct=options.crop_pct,
        )
        return "\n".join(_line(run_id, name, metrics) for name, metrics in found.items())

    return each(options.run_ids, tell)


if __name__ == "__main__":
    sys.exit(main())

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
from typing import TYPE_CHECKING, Any, get_args

from ...jobs.atomic_files import make_folder
from ...jobs.documents import from_plain
from ...jobs.grid.own_function import is_taken
from ...jobs.run.metrics import MAIN, METRICS
from ...jobs.run.settings import OwnFunction, Token
from ...jobs.values import changed
from ...jobs.workspace.allocation import DECODED_GIB
from ...jobs.workspace.journal import JournalWriter
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import NoWeights, final_of
from .each import each
from .scorer import ByNeighbours, Scorer

if TYPE_CHECKING:
    pass


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
    scales: Sequence[float] = (),
    token: Token | None = None,
    neighbours: ByNeighbours | None = None,
    splits: int | None = None,
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
        scales: of images with masks, as factors of the recipe's size: the mean of all, and of the
            mirror images; the set is then called `test@scales0.5-1-1.5`.
        token: the classifier that answers alone, of a student with two; `test@class-token`.
        neighbours: score the features by nearest neighbours, in place of the classifier.
        splits: score them by how well a linear layer tells apart so many random halvings of the
            training classes; `sets` do not count then.

    Raises:
        BackboneError: the student has one classifier.
        BadInput: there are fewer training images than neighbours.
        NoWeights: the run has not completed, or its weights are gone or damaged.
        DataError: the dataset is not there.
    """
    import torch

    from ..checkpoints.weights import load_weights
    from ..data.decoded import Decoder
    from ..models.backbones import build
    from ..training.trainee import make_numerics

    final = final_of(workspace, run_id)
    spec = final.spec
    by_features = neighbours is not None or splits is not None
    if not by_features and not spec.head.shared.labels:
        raise NoWeights(f"run {run_id} has no classifier: it was trained without labels")
    given = {"image_size": image_size, "eval_crop_pct": crop_pct}
    recipe = changed(
        spec.recipe, **{name: value for name, value in given.items() if value is not None}
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    numerics = make_numerics(
        device, precision=recipe.precision, tf32=recipe.tf32, deterministic=recipe.deterministic
    )
    model = build(spec.backbone, changed(spec, recipe=recipe).shape, spec.head)
    load_weights(model, final.weights)
    if token is not None:
        from ..models.students import answer_by

        answer_by(model, token)
    model.to(device)
    scorer = Scorer(
        spec=spec,
        recipe=recipe,
        crops=crop_pct is not None,
        scales=scales,
        model=model,
        numerics=numerics,
        decoder=Decoder(
            # All training images may be more than a workspace keeps.
            folder=None if by_features else workspace.decoded,
            workers=min(16, len(os.sched_getaffinity(0))),
            limit_bytes=int(decoded_gib * 2**30),
        ),
        data_root=data_root,
        paths=paths,
    )
    if splits is not None:
        scores = scorer.by_halves(splits)
    elif not spec.dataset.has_classes:
        scores = scorer.by_whole_images(sets)
    elif neighbours is None:
        scores = scorer.by_classifier(sets, metrics)
    else:
        scores = scorer.by_neighbours(sets, neighbours)
    labels = None if neighbours is None else neighbours.labels
    how = _how(image_size, crop_pct, scales, labels, token)
    found = {f"{name}{how}": values for name, values in scores.items()}
    _journal(workspace.run(run_id).evaluations, final.attempt, final.manifest, found)
    return found


def _how(
    image_size: int | None,
    crop_pct: float | None,
    scales: Sequence[float],
    labels: str | None,
    token: Token | None,
) -> str:
    """Return what a set's name ends with where it is not scored as in training."""
    parts = [f"{image_size}px"] if image_size is not None else []
    parts += [f"crop{crop_pct:g}"] if crop_pct is not None else []
    parts += ["scales" + "-".join(f"{scale:g}" for scale in scales)] if scales else []
    parts += [f"{token}-token"] if token is not None else []
    parts += [labels] if labels is not None else []
    return f"@{'-'.join(parts)}" if parts else ""


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
    told = (*MAIN.values(), "loss", *(name for name in metrics if name not in METRICS))
    order = [name for name in told if name in metrics]
    shown = "  ".join(f"{name} {metrics[name]:{_format(name)}}" for name in order)
    return f"{run_id} {set_name}: {shown}  n {metrics['n']:.0f}"


def _format(metric: str) -> str:
    if metric == "loss":
        return ".4f"
    return ".2f" if is_taken(metric) else ".4g"


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
    parser.add_argument(
        "--scales", type=lambda text: [float(one) for one in text.split(",")], default=[]
    )
    parser.add_argument("--knn", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--separability", type=int)
    parser.add_argument("--labels")
    parser.add_argument("--token", choices=get_args(Token))
    parser.add_argument("run_ids", nargs="+")
    options = parser.parse_args()
    metrics = from_plain(json.load(sys.stdin) if options.metrics else [], list[OwnFunction])
    neighbours = ByNeighbours(counts=options.knn, labels=options.labels) if options.knn else None

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
            scales=options.scales,
            token=options.token,
            neighbours=neighbours,
            splits=options.separability,
        )
        return "\n".join(_line(run_id, name, metrics) for name, metrics in found.items())

    return each(options.run_ids, tell)


if __name__ == "__main__":
    sys.exit(main())

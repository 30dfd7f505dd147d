"""Score finished weights: in a process of its own, here and now.

The journals it leaves are ingested.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...db.ingest import ingest_evaluations
from ...jobs.config.host import clean_environment
from ...jobs.config.interpreter import module_command
from ...jobs.documents import to_plain
from ...jobs.errors import BadInput, NothingMatched, VtjobsError, suggest
from ...jobs.grid import catalogue
from ...jobs.grid.scoring import has_further_sets
from ...jobs.run.settings import CellSettings, DatasetSettings, Token
from ...jobs.units import plural
from ...jobs.workspace.grid_settings import GridSettings
from ..loop.context import Context

# Runs that one scoring process is given; a command line has a limit.
MOST_IDS = 1000


def evaluate(
    context: Context,
    run_ids: Sequence[str],
    sets: Sequence[str],
    *,
    show: bool,
    image_size: int | None = None,
    crop_pct: float | None = None,
    scales: Sequence[float] = (),
    knn: Sequence[int] = (),
    labels: str | None = None,
    token: Token | None = None,
    separability: int | None = None,
    on_left_out: Callable[[str], None] = lambda told: None,
) -> list[records.ResultRow]:
    """Score the completed ones among these runs; return their results on these sets.

    Args:
        context: workspace and ledger.
        run_ids: any runs.
        sets: names of sets of their datasets.
        show: whether the scores are printed as they come.
        image_size: another side of the input than the recipe's, pixels.
        crop_pct: another share that the centre crop keeps.
        scales: of images with masks, as factors of the recipe's size, in place of that size.
        knn: numbers of nearest training images by which features are scored, in place of the
            classifier.
        labels: a known dataset whose classes count, for runs that were trained on its images. Of
            runs that were trained on its classes, their own count.
        token: the classifier that answers alone, of students with a distillation token.
        separability: number of random halvings of the training classes that a linear layer is to
            tell apart on the features of the training images, in place of scores on sets.
        on_left_out: told how many runs were left out, as they were trained on other images.

    Raises:
        BadInput: a set is unknown, is the training set itself where neighbours score it, or no run
            was trained on the images of `labels`.
        NothingMatched: none of the runs has completed.
    """
    with reading(context.ledger.engine) as connection:
        completed = lookups.completed_runs(connection, run_ids)
        options = {
            "--image-size": image_size,
            "--crop-pct": crop_pct,
            "--knn": ",".join(map(str, knn)) or None,
            "--scales": ",".join(map(str, scales)) or None,
            "--token": token,
            "--separability": separability,
        }
        by_grid, others = _chosen(completed, sets, knn, labels, options)
        settings = queries.grid_settings(connection, {grid_id for grid_id, _ in by_grid})
    if others:
        if not by_grid:
            raise BadInput(others[0])
        on_left_out(f"{plural(len(others), 'run')} left out. {others[0]}")
    if not by_grid:
        what = "" if knn or separability else " with a classifier that can be scored"
        raise NothingMatched(f"no selected run has completed{what}")
    given = options | {"--sets": ",".join(sets)}
    codes = [
        _score(context, ids, _words(given | {"--labels": own}), settings[grid_id], show)
        for (grid_id, own), ids in by_grid.items()
    ]
    chosen = [run_id for ids in by_grid.values() for run_id in ids]
    ingest_evaluations(context.ledger, context.workspace, chosen)
    if any(codes):
        raise VtjobsError("some runs could not be scored")
    with reading(context.ledger.engine) as connection:
        return [
            row
            for row in queries.results_of(connection, chosen)
            if row.set_name.partition("@")[0] in sets
        ]


def _other_task(dataset: DatasetSettings, options: Mapping[str, Any]) -> str | None:
    """Return why a run cannot be scored as the options say, by what it was trained for."""
    of_classes = ("--image-size", "--crop-pct", "--knn", "--token", "--separability")
    wrong = {
        "classification": ("--scales",),
        "segmentation": of_classes,
        "detection": (*of_classes, "--scales"),
    }
    option = next((name for name in wrong[dataset.task] if options[name] is not None), None)
    if option is None:
        return None
    if dataset.has_objects:
        return f"{option}: not for runs on objects. Remove it"
    if dataset.has_masks:
        return f"{option}: not for runs on masks. Remove it, or give --scales for other sizes"
    return f"{option}: for runs on masks alone. Give --image-size for another size"


def _without_token(settings: CellSettings) -> str | None:
    """Return why a run cannot be scored by one of two tokens."""
    # As timm's models with two are called.
    if "_distilled" in settings.backbone.model:
        return None
    return "--token: for backbones with a distillation token alone, such as deit_s_distilled"


def _chosen(
    completed: Iterable[lookups.CompletedRun],
    sets: Sequence[str],
    knn: Sequence[int],
    labels: str | None,
    options: Mapping[str, Any],
) -> tuple[dict[tuple[str, str | None], list[str]], list[str]]:
    """Return the runs to score, by grid and by the classes that count (None: their own).

    And why each of the others cannot be scored so: it has other images than `labels`, or was
    trained for another task than the options are for.
    """
    by_grid: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    others: list[str] = []
    for run in completed:
        dataset = run.settings.dataset
        of_features = knn or options["--separability"]
        if not of_features and not run.settings.head.shared.labels:
            continue
        why = other_images(dataset, labels) or _other_task(dataset, options)
        if why is None and options["--token"] is not None:
            why = _without_token(run.settings)
        if why is not None:
            others.append(why)
            continue
        check_sets(dataset, sets)
        _check_neighbours(dataset, sets, knn)
        by_grid[run.grid_id, None if dataset.name == labels else labels].append(run.run_id)
    return by_grid, others


def check_sets(dataset: DatasetSettings, sets: Sequence[str], *, option: str = "--sets") -> None:
    """Refuse a set that a dataset does not have.

    Raises:
        BadInput: with the sets that there are.
    """
    known = catalogue.sets_of(dataset)
    for name in sets:
        # What a folder or a lab's own class has the scoring sees; a name is no path.
        may_be_there = has_further_sets(dataset) and name.replace("-", "_").isidentifier()
        if name not in known and not may_be_there:
            raise BadInput(
                f"{option} {name}: dataset {dataset.name} has no such set. {suggest(name, known)}"
            )


def _words(options: Mapping[str, Any]) -> list[str]:
    return [
        word
        for option, value in options.items()
        if value is not None
        for word in (option, str(value))
    ]


def other_images(dataset: DatasetSettings, labels: str | None) -> str | None:
    """Return why a dataset's images have no such classes, or None where they have."""
    known = catalogue.same_images(dataset.name)
    if labels is None or labels in (dataset.name, *known):
        return None
    there = suggest(labels, known) if known else f"No dataset has the images of {dataset.name}"
    return f"--labels {labels}: other images than those of {dataset.name}. {there}"


def _check_neighbours(dataset: DatasetSettings, sets: Sequence[str], knn: Sequence[int]) -> None:
    """Refuse what neighbours cannot score, before the features of a training set are computed."""
    if not knn:
        return
    if "train" in sets:
        raise BadInput("--sets train: with --knn each image would be its own nearest neighbour")
    known = catalogue.datasets().get(dataset.name, {}).get("sets", {})
    for name in sets:
        if "over" in known.get(name, {}):
            raise BadInput(
                f"--sets {name}: cannot be scored with --knn, as an image may have several right"
                " classes"
            )
    if max(knn) > dataset.trained_on:
        raise BadInput(
            f"--knn {max(knn)}: {dataset.name} has {dataset.trained_on:,} training images"
        )


def _score(
    context: Context, run_ids: list[str], options: list[str], settings: GridSettings, show: bool
) -> int:
    command = module_command("vtjobs.workers.tools.score")
    command += ["--workspace", str(context.workspace.root)]
    command += ["--data", str(context.config.data_root), "--paths", json.dumps(settings.paths)]
    # Their sources may be longer than a command line.
    metrics = json.dumps(to_plain(settings.metrics))
    command += ["--decoded-gib", str(context.config.get("decoded_gib")), *options]
    output = None if show else subprocess.DEVNULL
    codes = [
        subprocess.run(
            [*command, "--metrics", *run_ids[start : start + MOST_IDS]],
            stdout=output,
            env=clean_environment(),
            input=metrics,
            text=True,
        ).returncode
        for start in range(0, len(run_ids), MOST_IDS)
    ]
    return max(codes)

"""Finished weights: two of them compared, scored again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from ..jobs.errors import BadInput, NothingMatched
from .options import (
    Json,
    RunId,
    Selector,
    Workspace,
    look_into,
    make_pass,
    one_run,
    open_workspace,
    select_ids,
)
from .result_options import SetName

if TYPE_CHECKING:
    from ..jobs.run.settings import Token

# Of an image with a mask: a larger one would not fit many GPUs.
MOST_SCALE = 8


def mcnemar(
    run: RunId,
    other: Annotated[
        str,
        typer.Argument(help="Run to compare it with; both need scores on the same images."),
    ],
    set_name: SetName = "test",
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Compare two checkpoints on the same images (McNemar's test).

    This compares the two checkpoints, not the methods behind them. For methods, use
    `vtjobs compare`.
    """
    from ..analysis.findings import per_image
    from ..analysis.output.wording import p_value
    from ..jobs.values import asdict
    from .printing import terminal

    context = look_into(workspace)
    run_ids = [one_run(context, name) for name in (run, other)]
    bits = [per_image.read(context.workspace, run_id, set_name) for run_id in run_ids]
    for run_id, one in zip(run_ids, bits, strict=True):
        if one is None:
            raise NothingMatched(
                f"run {run_id} has no per-image results on {set_name}: completed runs have them,"
                " but for those on masks or objects"
            )
    first, second = (per_image.images_of(context.workspace, run_id, set_name) for run_id in run_ids)
    if first != second:
        raise BadInput(
            f"{set_name} has different images in the two runs (other dataset or held-out part)"
        )
    found = per_image.mcnemar(*bits)
    if as_json:
        terminal.emit_json(
            per_image.ComparedRuns(schema_version=1, runs=run_ids, set=set_name, **asdict(found))
        )
        return
    rows = [
        [f"{run_ids[0][:8]} right", str(found.both), str(found.only_first)],
        [f"{run_ids[0][:8]} wrong", str(found.only_second), str(found.neither)],
    ]
    terminal.print_table(
        ["", f"{run_ids[1][:8]} right", f"{run_ids[1][:8]} wrong"], rows, right=(1, 2)
    )
    p = f", p={p_value(found.p)} (McNemar, exact)" if found.p is not None else ""
    terminal.say(
        f"{found.images:,} images of {set_name}; "
        f"difference {found.difference:+.2f} points{p}. "
        "This compares two checkpoints, not two methods. For methods, see: vtjobs compare"
    )


def evaluate(
    selector: Selector = None,
    sets: Annotated[
        str,
        typer.Option(
            help="Evaluation sets, comma-separated: test, train, val or others of the dataset.",
        ),
    ] = "test",
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Input side in pixels; stored as, e.g., test@256px [default: the recipe's].",
            min=4,
        ),
    ] = None,
    crop_pct: Annotated[
        float | None,
        typer.Option(
            help="Centre crop (fraction); stored as, e.g., test@crop0.9 [default: the recipe's].",
            min=0.01,
            max=1,
        ),
    ] = None,
    scales: Annotated[
        str | None,
        typer.Option(
            help="For masks: mean over these factors of the size, and over mirror images, e.g. "
            "0.5,1,1.5; stored as test@scales0.5-1-1.5.",
            metavar="F[,F…]",
        ),
    ] = None,
    knn: Annotated[
        str | None,
        typer.Option(
            help="Score features by nearest training images instead, e.g. 10,20: accuracy (knn10, "
            "knn20) and mean average precision (map).",
            metavar="K[,K…]",
        ),
    ] = None,
    separability: Annotated[
        int | None,
        typer.Option(
            help="Score features of the training images instead: how well a linear layer tells "
            "apart random halves of each class, over so many splits; stored for the set train.",
            metavar="SPLITS",
            min=2,
            max=100,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="With --knn: judge by the classes of this dataset, which has the same images; "
            "stored as, e.g., test@cifar100.",
            metavar="DATASET",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Of students with a distillation token: score the classifier of this token alone, "
            "class or distillation; stored as, e.g., test@class-token.",
            metavar="TOKEN",
        ),
    ] = None,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Evaluate the final weights of completed runs."""
    from ..orchestrator.housekeeping.evaluate import evaluate as score
    from .printing import terminal

    counts, factors = _counts(knn), _factors(scales)
    if labels is not None and not counts:
        raise BadInput("--labels needs --knn: a classifier knows its own classes only")
    if token is not None and counts:
        raise BadInput("--token: --knn scores features, not a classifier. Remove one of the two")
    asked = sets.split(",")
    if separability is not None:
        asked = _training_alone(sets, counts=counts, token=token, factors=factors)
    context = open_workspace(workspace)
    make_pass(context, start=False)
    run_ids = select_ids(context, selector)
    found = score(
        context,
        run_ids,
        asked,
        show=not as_json,
        image_size=image_size,
        crop_pct=crop_pct,
        scales=factors,
        knn=counts,
        labels=labels,
        token=_token(token),
        separability=separability,
        on_left_out=terminal.say,
    )
    if as_json:
        terminal.emit_json(found)


def _training_alone(
    sets: str, *, counts: Sequence[int], token: str | None, factors: Sequence[float]
) -> list[str]:
    """Return the only set whose images separability is about.

    Raises:
        BadInput: other scores are asked for as well.
    """
    if counts or token is not None or factors:
        raise BadInput("--separability: cannot be combined with --knn, --token or --scales")
    if sets not in ("test", "train"):
        raise BadInput(f"--separability: is of the training images. Remove --sets {sets}")
    return ["train"]


def _token(word: str | None) -> "Token | None":
    from ..jobs.run.settings import Token

    known: tuple[Token, ...] = get_args(Token)
    found = next((token for token in known if token == word), None)
    if word is not None and found is None:
        raise BadInput(f"--token {word}: must be {' or '.join(known)}")
    return found


def _factors(scales: str | None) -> list[float]:
    """Return the factors of the size that an option lists, in rising order."""
    try:
        factors = [float(one) for one in scales.split(",")] if scales is not None else []
    except ValueError:
        factors = [0.0]
    # The set's name has them as they are written here.
    if any(not 0 < factor <= MOST_SCALE or round(factor, 2) != factor for factor in factors):
        example = "of two digits after the point at most, e.g. 0.5,1"
        raise BadInput(f"--scales {scales}: must be numbers above 0, up to {MOST_SCALE}, {example}")
    return sorted(set(factors))


def _counts(knn: str | None) -> list[int]:
    """Return the numbers of neighbours that an option lists."""
    try:
        counts = [int(count) for count in knn.split(",")] if knn is not None else []
    except ValueError:
        counts = [0]
    if any(count < 1 for count in counts):
        raise BadInput(f"--knn {knn}: must be whole numbers from 1 on, e.g. 10,20")
    return sorted(set(counts))

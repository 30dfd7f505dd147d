"""Figures of what a run's final weights show: attention, class activation, relations, filters."""

import os
from pathlib import Path
from typing import Annotated, get_args

import typer

from ..jobs.errors import BadInput, suggest
from ..jobs.run.picture_kinds import Kind
from .options import Json, RunId, Workspace, look_into, one_run

KINDS = get_args(Kind)
# No dataset has more images or classes.
MOST_DIGITS = 12
# Option -> the kinds that it is for.
ASKED: dict[str, tuple[str, ...]] = {
    "--set": ("attention", "cam", "relations", "features", "neighbours", "depth", "masks"),
    "--images": ("attention", "cam", "relations", "features", "neighbours", "depth", "masks"),
    "--classes": ("attention", "cam", "features", "neighbours"),
    "--labels": ("features", "neighbours"),
    "--at": ("relations",),
}


def visualize(
    run: RunId,
    out: Annotated[Path, typer.Argument(help="Folder for the figures (created if missing).")],
    kind: Annotated[
        str,
        typer.Option(
            help="attention (class token to patches), cam (class activation maps), relations (what"
            " drloc or relvit predicts), filters (over patches, of ResMLP and MLP-Mixer),"
            " features (t-SNE and principal components), neighbours (the training images with the"
            " nearest features), depth (what each block adds) or masks"
            " (or objects, beside what is predicted).",
            autocompletion=lambda: list(KINDS),
        ),
    ] = "attention",
    set_name: Annotated[
        str | None, typer.Option("--set", help="Evaluation set [default: test].")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            help="Images by their place in the set, from 0, e.g. 0,12; up to 64, of features any"
            " number [default: four; of depth up to 64, of features up to 1000].",
            metavar="N[,N…]",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Classes by number, from 0. Each has a map of its own [default: the predicted one"
            " and the right one]; of features and neighbours, show the images of these classes.",
            metavar="N[,N…]",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="With --kind features or neighbours: show the classes of this dataset, which has"
            " the same images, e.g. cifar100 of cifar100_coarse.",
            metavar="DATASET",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            help="With --kind relations: a point in the patch that the others are compared with;"
            " row and column as fractions of the sides [default: 0.5,0.5].",
            metavar="ROW,COLUMN",
        ),
    ] = None,
    as_json: Json = False,
    workspace: Workspace = None,
) -> None:
    """Draw what a completed run's weights show: attention, class activation and other maps.

    Writes each figure as SVG and PDF, and its numbers as CSV.
    """
    from ..orchestrator.housekeeping.visualize import Visualized, nearest_of, pictures
    from .printing import terminal

    if kind not in KINDS:
        raise BadInput(f"--kind {kind}: unknown. {suggest(kind, KINDS)}")
    given = {
        **{"--set": set_name, "--images": images, "--classes": classes},
        **{"--labels": labels, "--at": at},
    }
    _check_options(kind, given)
    _check_folder(out)
    context = look_into(workspace)
    run_id = one_run(context, run)
    found = pictures(
        context,
        run_id,
        kind,  # type: ignore[arg-type]
        set_name="test" if set_name is None else set_name,
        images=_numbers("--images", images),
        classes=_numbers("--classes", classes),
        labels=labels,
        point=_point(at),
    )
    # Matplotlib is imported where there is something to draw.
    from ..analysis.output.figures.maps import maps

    figures = maps(found)
    out.mkdir(parents=True, exist_ok=True)
    files = [str(path) for drawn in figures for path in drawn.write(out)]
    if as_json:
        terminal.emit_json(
            Visualized(
                run_id=run_id,
                kind=found.kind,
                text=found.text,
                shown=[shown.title for shown in found.shown],
                layers=found.layers,
                blocks=found.blocks,
                nearest=nearest_of(found.queries),
                files=files,
            )
        )
        return
    for file in files:
        terminal.write(file)
    terminal.say(found.text)


def _check_options(kind: str, given: dict[str, str | None]) -> None:
    for option, value in given.items():
        if value is not None and kind not in ASKED[option]:
            *first, last = ASKED[option]
            kinds = f"{', '.join(first)} or {last}" if first else last
            raise BadInput(f"{option} is for --kind {kinds}. Remove it")
    if kind in ASKED["--labels"] and given["--images"] and given["--classes"]:
        raise BadInput(f"--kind {kind}: --images and --classes both choose images. Remove one")


def _check_folder(out: Path) -> None:
    """Refuse a folder that cannot be written, before a minute of work is lost on it."""
    nearest = next(
        path for path in (out.absolute(), *out.absolute().parents) if os.path.lexists(path)
    )
    if os.path.isfile(nearest) or (os.path.islink(nearest) and not os.path.exists(nearest)):
        raise BadInput(f"{nearest} is no folder. Give a folder (created if missing)")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"{nearest}: permission to write denied. Give another folder")


def _numbers(option: str, text: str | None) -> list[int]:
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isdecimal() and len(part) <= MOST_DIGITS for part in parts):
        raise BadInput(f"{option} {text}: must be whole numbers from 0 on, e.g. 0,12")
    return [int(part) for part in parts]


def _point(text: str | None) -> tuple[float, float]:
    if text is None:
        return 0.5, 0.5
    try:
        row, column = (float(part) for part in text.split(","))
    except ValueError:
        row = column = -1.0
    if not (0 <= row <= 1 and 0 <= column <= 1):
        raise BadInput(f"--at {text}: must be two numbers from 0 to 1, e.g. 0.25,0.75")
    return row, column

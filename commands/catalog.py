"""What the catalogue holds, and what a backbone costs."""

import json
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json

if TYPE_CHECKING:
    from ..jobs.run.cost import Cost, MemoryLine, PrintedCost

Name = Annotated[
    str | None,
    typer.Argument(help="Name of a recipe [default: list the grids].", show_default=False),
]


Rate = Annotated[
    float | None,
    typer.Option(
        help="Training images per second and GPU, to estimate each grid's GPU-hours.",
        min=1e-6,
        max=1e9,
        show_default=False,
    ),
]


def catalog(name: Name = None, rate: Rate = None, as_json: Json = False) -> None:
    """List the built-in grids, or the fields of a recipe.

    Grids are listed with their numbers of cells, runs and training images; fields with the source
    of their values.
    """
    from .printing import catalogue, terminal
    from .printing.settings import as_written

    if name is None:
        _grids(as_json, rate)
        return
    found = catalogue.recipe(name)
    if as_json:
        terminal.emit_json(found)
        return
    terminal.write(f"{found.recipe}: {found.source}")
    rows = []
    for field in found.fields:
        differs = as_written(field.code) if field.code != field.value else ""
        rows.append([field.name, as_written(field.value), differs, field.source])
    terminal.print_table(["FIELD", "VALUE", "CODE", "SOURCE"], rows)
    for dataset, values in found.datasets.items():
        text = ", ".join(f"{name}: {value}" for name, value in values.items())
        terminal.write(f"on {'any dataset' if dataset == 'any' else dataset}: {text}")


def _grids(as_json: bool, rate: float | None) -> None:
    from .printing import catalogue, terminal

    grids = catalogue.grids(rate)
    if as_json:
        terminal.emit_json(grids)
        return
    rows = []
    for one in grids:
        images = f"{one.images / 1e6:.3g} M"
        hours = [f"{one.gpu_hours:,.0f}"] if one.gpu_hours is not None else []
        rows.append([one.grid, str(one.cells), str(one.runs), images, *hours, one.description])
    cost = ["GPU-HOURS"] if rate is not None else []
    terminal.print_table(
        ["GRID", "CELLS", "RUNS", "IMAGES", *cost, "WHAT"],
        rows,
        right=(1, 2, 3, 4)[: 3 + len(cost)],
    )


def measure(
    backbones: Annotated[list[str], typer.Argument(help="Short names or timm model names.")],
    batch: Annotated[
        str,
        typer.Option(help="Batch size in images, or `largest` (that fits the GPU)."),
    ] = "32",
    image_size: Annotated[
        str,
        typer.Option(
            help="Side of the square input in pixels, 4 to 4096; several sizes with commas."
        ),
    ] = "224",
    classes: Annotated[int, typer.Option(help="Number of classes.", min=1)] = 1000,
    precision: Annotated[str, typer.Option(help="Precision: fp32, fp16 or bf16.")] = "fp32",
    repeats: Annotated[
        int,
        typer.Option(help="Number of timed passes, after 3 warm-up passes.", min=1, max=100_000),
    ] = 30,
    training: Annotated[
        bool,
        typer.Option(
            "--training",
            help="Forward and backward passes [default: forward passes only].",
        ),
    ] = False,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="KEY=VALUE",
            help="Argument of the model, e.g. num_heads=8; may be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure parameters, FLOPs, throughput and memory of backbones.

    Throughput (images per second) and peak memory are measured on this machine. Without a GPU, the
    memory of all tensors that are alive at once is counted instead. With three image sizes or more,
    a line through the memory over the area of the image is fitted.
    """
    from ..jobs.config.host import clean_environment
    from ..jobs.config.interpreter import module_command
    from ..jobs.documents import from_plain
    from ..jobs.errors import BadInput, suggest
    from ..jobs.grid.catalogue import printed_cost
    from ..jobs.run.cost import Cost, memory_line
    from ..jobs.values import changed
    from .printing import terminal

    if batch != "largest" and not (
        batch.isascii() and batch.isdigit() and 0 < int(batch) <= 1 << 16
    ):
        raise BadInput(f"--batch {batch}: a number from 1 to 65536, or largest")
    if precision not in ("fp32", "fp16", "bf16"):
        raise BadInput(
            f"--precision {precision}: unknown. {suggest(precision, ('fp32', 'fp16', 'bf16'))}"
        )
    command = module_command("vtjobs.workers.tools.measure")
    command += ["--image-size", *_sizes(image_size), "--classes", str(classes)]
    command += ["--precision", precision, "--repeats", str(repeats)]
    command += ["--training"] if training else []
    command += ["--batch", batch] if batch != "largest" else []
    command += ["--arguments", json.dumps(_arguments(arguments or []))]
    done = subprocess.run(
        [*command, "--", *backbones], stdout=subprocess.PIPE, env=clean_environment()
    )
    measured = [from_plain(json.loads(line), Cost) for line in done.stdout.splitlines()]
    lines = {
        name: memory_line([one for one in measured if one.backbone == name])
        for name in dict.fromkeys(one.backbone for one in measured)
    }
    found = [
        changed(one, printed=printed_cost(one), memory_line=lines[one.backbone]) for one in measured
    ]
    if as_json:
        terminal.emit_json(found)
    elif found:
        _print_costs(found)
        for name, line in lines.items():
            if line is not None:
                terminal.say(_line(name, line))
    if done.returncode:
        raise typer.Exit(done.returncode)


def _arguments(given: list[str]) -> dict[str, object]:
    """Return arguments of a model by name, each value as in a grid file."""
    from ..jobs.errors import BadInput
    from ..jobs.strict_yaml import parse

    found: dict[str, object] = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not sign or not key.isidentifier():
            raise BadInput(f"--arg {one}: write it as KEY=VALUE, e.g. num_heads=8")
        found[key] = parse(f"{key}: {value}".encode(), file=f"--arg {one}").data[key]
    return found


def _sizes(given: str) -> list[str]:
    from ..jobs.errors import BadInput

    sizes = [one.strip() for one in given.split(",")]
    for size in sizes:
        if not (size.isascii() and size.isdigit() and 4 <= int(size) <= 4096):
            raise BadInput(
                f"--image-size {given}: numbers from 4 to 4096, with commas between them"
            )
    return list(dict.fromkeys(sizes))


def _print_costs(found: "Sequence[Cost]") -> None:
    from .printing import terminal

    one = found[0]
    terminal.print_table(
        [
            "BACKBONE",
            "PIXELS",
            "TOKENS",
            "PARAMETERS",
            "GFLOPS",
            "IMAGES/S",
            "BATCH",
            "PEAK MEMORY",
        ],
        [_cost(row) for row in found],
        right=(1, 2, 3, 4, 5, 6, 7),
    )
    made = ", ".join(
        f"{name} {version}" for name, version in one.software.items() if name in ("torch", "timm")
    )
    what = f"{one.pass_}, {one.precision}, mean of {one.repeats} passes"
    terminal.say(f"{what}; {one.device}; {made}; FLOPs are multiply-adds of one image.")
    if one.tensor_memory_bytes is not None:
        terminal.say("Memory: all tensors that are alive at once, counted; no GPU was used.")
    for line in filter(None, map(_printed, found)):
        terminal.say(line)


def _line(name: str, line: "MemoryLine") -> str:
    return (
        f"{name}: memory is {line.fixed_bytes / 2**20:,.0f} MiB and"
        f" {line.bytes_per_pixel / 2**10:,.3g} KiB for each pixel of the image; the {line.sizes}"
        f" sizes are off this line by {100 * line.largest_deviation:.2g} % at most"
    )


def _printed(one: "Cost") -> str:
    """Return what a paper prints of a backbone beside ours; empty where it prints nothing."""
    printed = one.printed
    if printed is None:
        return ""
    memory = printed.peak_memory_bytes
    figures = f"{printed.images_per_second:,.0f} images/s"
    figures += "" if memory is None else f" and {memory / 2**20:,.0f} MiB"
    batch = "the largest batch that fits" if printed.batch is None else f"batch {printed.batch}"
    precision = "" if printed.precision is None else f", {printed.precision}"
    return (
        f"{one.backbone} in the {printed.source}: {figures} at inference on a {printed.device},"
        f" {batch}{precision}{_ratio(one, printed)}"
    )


def _ratio(one: "Cost", printed: "PrintedCost") -> str:
    """Return how a measurement compares with a printed one, or why it does not."""
    if printed.differs:
        return f"; not comparable: other {' and '.join(printed.differs)}"
    memory = "" if printed.memory_ratio is None else f", memory ×{printed.memory_ratio:.2g}"
    return f"; here, on {one.device}: speed ×{printed.speed_ratio:.2g}{memory}"


def _cost(one: "Cost") -> list[str]:
    peak = one.peak_memory_bytes or one.tensor_memory_bytes
    decimals = 0 if one.images_per_second >= 100 else 1
    speed = f"{one.images_per_second:,.{decimals}f}"
    if one.seconds_std is not None:
        std = one.images_per_second * one.seconds_std / one.seconds
        speed += f" ± {std:,.{decimals}f}"
    memory = "–" if peak is None else f"{peak / 2**20:,.0f} MiB"
    return [
        one.backbone,
        str(one.image_size),
        "–" if one.tokens is None else f"{one.tokens:,}",
        f"{one.parameters:,}",
        f"{one.multiply_adds / 1e9:.3g}",
        speed,
        str(one.batch),
        memory,
    ]

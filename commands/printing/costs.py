"""What runs use and what they cost, as tables."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...analysis.output import wording
from ...jobs.units import format_bytes, format_duration
from . import terminal

if TYPE_CHECKING:
    from ...orchestrator.views.costs import CellCost
    from ...orchestrator.views.efficiency import Efficiency
    from ...orchestrator.views.spent import Spent


def print_costs(cells: Sequence["CellCost"]) -> None:
    """Print a row for each cell, and below the table what the figures are."""
    names = wording.columns(cells)
    figures: dict[str, Callable[[CellCost], str]] = {
        "SCORE": lambda cell: _number(cell.score, "{:.2f}"),
        "RUNS": lambda cell: f"{cell.runs}/{cell.planned}",
        "PARAMS": lambda cell: _millions(cell.parameters),
        "HEAD": lambda cell: _millions(cell.head_parameters),
        "GFLOPS": lambda cell: _number(cell.multiply_adds, "{:.3g}", by=1e9),
        "SEEN": lambda cell: _images(cell.images_seen),
        "PASSES": lambda cell: _number(cell.passes, "{:.4g}"),
        "IMG/S": lambda cell: _number(cell.images_per_s, "{:.0f}"),
        "S/BATCH": _step,
        "OVERHEAD": lambda cell: _overhead(cell.time_ratio),
        "GPU-MEM": lambda cell: _bytes(cell.peak_memory_bytes),
        "GPU-H": lambda cell: _number(cell.gpu_hours, "{:.2f}"),
        "HOURS": lambda cell: _number(cell.run_hours, "{:.2f}"),
    }
    rows = [
        [*wording.labels(cell, names), *(text(cell) for text in figures.values())] for cell in cells
    ]
    heading = [*map(str.upper, names), *figures]
    terminal.print_table(heading, rows, right=tuple(range(len(names), len(heading))))
    terminal.say(
        "SCORE: mean of the completed runs (RUNS), on the test set: top1, miou on masks, or ap_box"
        " on objects. PARAMS: backbone with classifier; HEAD: what is left out after training."
        " GFLOPS: multiply-adds of one image. SEEN: images that a run trains on. PASSES: times that"
        " it goes through the different images; with repeated augmentation fewer than its epochs."
        " IMG/S and GPU-MEM: while training. S/BATCH: seconds of a step, mean and standard"
        " deviation. OVERHEAD: how much longer an image takes than without the head. GPU-H and"
        " HOURS: of one run."
    )
    for error in dict.fromkeys(cell.error for cell in cells if cell.error):
        terminal.say(f"not counted: {error}")


def _overhead(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _step(cell: "CellCost") -> str:
    mean = _number(cell.step_s, "{:.3g}")
    return mean if cell.step_std_s is None else f"{mean} ± {cell.step_std_s:.2g}"


def print_efficiency(cells: Sequence["Efficiency"]) -> None:
    """Print a row for each cell, and below the table what to change."""
    if not cells:
        terminal.say("none of these runs has started")
        return
    names = wording.columns(cells)
    figures: dict[str, Callable[[Efficiency], str]] = {
        "RUNS": lambda cell: str(cell.runs),
        "TIME": lambda cell: _time(cell.run_s),
        "ALLOCATED": lambda cell: f"{_time(cell.allocation_s)}/{_time(cell.walltime_s)}",
        "IMG/S": lambda cell: _number(cell.images_per_s, "{:.0f}"),
        "DATA": lambda cell: _share(cell.data_wait),
        "GPUS": lambda cell: str(cell.gpus) if cell.per_gpu == 1 else f"1/{cell.per_gpu}",
        "BUSY": lambda cell: _share(cell.gpu_utilisation),
        "GPU-MEM": lambda cell: _bytes(cell.peak_memory_bytes),
        "CORES": lambda cell: _number(cell.cpu_cores, "{:.1f}"),
        "HOST-MEM": lambda cell: _bytes(cell.host_memory_bytes),
    }
    rows = [
        [*wording.labels(cell, names), *(text(cell) for text in figures.values())] for cell in cells
    ]
    heading = [*map(str.upper, names), *figures]
    terminal.print_table(heading, rows, right=tuple(range(len(names), len(heading))))
    terminal.say(
        "TIME: mean of completed runs. ALLOCATED: longest allocation of the grid / walltime."
        " DATA: share of training spent waiting for data. BUSY: share of the time in which the"
        " GPU worked. GPU-MEM: most memory that PyTorch had allocated."
    )
    told: dict[str, list[str]] = {}
    for cell in cells:
        for sentence in cell.advice:
            told.setdefault(sentence, []).append(wording.title_of(cell, names))
    for sentence, of in told.items():
        terminal.write(f"{of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {sentence}")


def print_spent(groups: Sequence["Spent"], keys: Sequence[str]) -> None:
    """Print a row for each group, and their sum."""
    if not groups:
        terminal.say("none of these runs has started")
        return
    rows = [[*(group.group[key] for key in keys), *_hours([group])] for group in groups]
    if len(groups) > 1:
        # A run with attempts in two groups would count twice.
        rows.append(["total", *[""] * len(keys), *_hours(groups)[1:]])
    figures = ["RUNS", "ATTEMPTS", "RUN-H", "GPU-H", "USEFUL", "LOST", "FAILED", "SUPERSEDED"]
    heading = [*map(str.upper, keys), *figures]
    terminal.print_table(heading, rows, right=tuple(range(len(keys), len(heading))))


def _hours(groups: Sequence["Spent"]) -> list[str]:
    hours = [group.gpu_hours for group in groups]
    return [
        str(sum(group.runs for group in groups)),
        str(sum(group.attempts for group in groups)),
        f"{sum(group.run_hours for group in groups):.2f}",
        *(
            f"{sum(getattr(one, name) for one in hours):.2f}"
            for name in ("total", "useful", "lost", "failed", "superseded")
        ),
    ]


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _number(value: float | None, form: str, *, by: float = 1.0) -> str:
    return "-" if value is None else form.format(value / by)


def _millions(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.2f} M" if count else "0"


def _images(count: int | None) -> str:
    """Return a number of images, of which small trials see thousands and papers billions."""
    if count is None:
        return "-"
    return f"{count:,}" if count < 1_000_000 else f"{count / 1e6:,.0f} M"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _bytes(count: int | None) -> str:
    return "-" if count is None else format_bytes(count)

"""One run as lines of text."""

from typing import TYPE_CHECKING

from ...jobs.names import one_line
from ...jobs.run.design import seed_text
from ...jobs.units import format_bytes
from ...jobs.values import asdict
from .settings import as_written

if TYPE_CHECKING:
    from ...db.gpu_hours import GpuHours
    from ...jobs.workspace.events import LoadedWeights, Usage
    from ...orchestrator.views.attempts import AttemptView
    from ...orchestrator.views.details import ResultView, RunDetails

# Tensors that are named of those that were drawn or not used.
MOST_NAMED = 8


def lines(document: "RunDetails") -> list[str]:
    """Return what `vtjobs show` prints for a run's document."""
    axes = " ".join(f"{name}={value}" for name, value in document.axes.items())
    seed = seed_text(document.seed, document.streams)
    what = f"{document.backbone} on {document.dataset}, {document.head}, seed {seed} {axes}"
    newest = document.attempts[-1] if document.attempts else None
    # The reason of a failed run is its last attempt's signature, which has no numbers.
    reason = newest.message if newest and newest.signature == document.reason else document.reason
    of_grid, *others = document.grids
    also = f", also in {', '.join(others)}" if others else ""
    found = [
        f"run      {document.run_id}  ({of_grid}{also})",
        f"what     {what.rstrip()}",
        f"recipe   {document.recipe}" + (f", stage {document.stage}" if document.stage else ""),
        f"state    {document.shown_state}" + (f": {reason}" if reason else ""),
        f"source   {document.imported}" if document.imported else f"folder   {document.folder}",
    ]
    if document.parent:
        found.append(f"parent   {document.parent}")
    if document.weights is not None:
        found.append(f"weights  {_weights(document.weights)}")
    if document.tags:
        found.append(f"tags     {', '.join(document.tags)}")
    found += [f"note     {one.at[:10]} {one.by}: {one_line(one.text)}" for one in document.notes]
    found += _settings(document)
    found += ["", "attempts"]
    found += [line for attempt in document.attempts for line in _attempt(attempt)] or ["  none yet"]
    if document.results:
        found += ["", "results"]
        for result in document.results:
            found.append(f"  {result.set_name} {result.metric}: {_score(result)}")
    if document.checkpoints:
        found += ["", "checkpoints"]
        for point in document.checkpoints:
            there = "" if point.on_disk else ", removed"
            found.append(
                f"  attempt {point.attempt} step {point.step}: {format_bytes(point.bytes)}{there}"
            )
    found += ["", "history"]
    for event in document.history:
        change = f"{event.before or '·'} -> {event.after}"
        found.append(
            f"  {event.at}  attempt {event.attempt}  {change}  ({event.source}: {event.raw or '-'})"
        )
    return found


def _score(result: "ResultView") -> str:
    if not result.last_epoch:
        # Of an imported run whose files name no epoch.
        return f"{result.last:.4g}"
    best = f"best {result.best:.4g} at epoch {result.best_epoch}"
    return f"{result.last:.4g} at epoch {result.last_epoch} ({best})"


def _weights(weights: "LoadedWeights") -> str:
    text = f"{weights.loaded} tensors loaded"
    for what, names in (("drawn", weights.drawn), ("unused", weights.unused)):
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            text += f"; {what}: {', '.join(map(one_line, names[:MOST_NAMED]))}{more}"
    return text


def _settings(document: "RunDetails") -> list[str]:
    """Return what is set for head and recipe, and who says so."""
    found: list[str] = []
    if not document.spec:
        # An imported run: nobody knows.
        return found
    for part, name, settings, spec in (
        ("head", document.head, document.settings.head, document.spec["head"]["params"]),
        ("recipe", document.recipe, document.settings.recipe, document.spec["recipe"]),
    ):
        if not settings:
            continue
        found += ["", f"{part} {name}, fidelity: {spec['fidelity']}"]
        for one in settings:
            was = "" if one.published is None else f" from {as_written(one.published)}"
            found.append(f"  {one.name}: {as_written(one.value)}  ({one.source}{was})")
    return found


def _attempt(attempt: "AttemptView") -> list[str]:
    text = f"  {attempt.number}: {attempt.state}"
    if attempt.failure:
        where = f" at {attempt.place}" if attempt.place else ""
        text += f" ({attempt.failure}: {attempt.message}{where})"
    if attempt.host:
        text += f", on {attempt.host}"
    if attempt.resumed_step is not None:
        how = "exactly" if attempt.exact else "within rounding"
        text += (
            f", resumed {how} from attempt {attempt.resumed_attempt} step {attempt.resumed_step}"
        )
    if attempt.step is not None and attempt.steps:
        text += f", step {attempt.step}/{attempt.steps}"
    used = "" if attempt.usage is None else _usage(attempt.usage)
    spent = f"GPU-hours: {gpu_hours_text(attempt.gpu_hours)}" if attempt.gpu_hours.total else ""
    return [text, *(f"     {line}" for line in (used, spent) if line)]


def _usage(usage: "Usage") -> str:
    """Return what is known of an attempt's usage."""
    figures = (
        (usage.images_per_s, "{:.0f} img/s", 1),
        (usage.data_wait, "waiting for data {:.0f} %", 100),
        (usage.gpu_utilisation, "GPU {:.0f} %", 100),
        (usage.cpu_cores, "CPU {:.1f} cores", 1),
    )
    sizes = (
        (usage.peak_memory_bytes, "peak memory {}"),
        (usage.gpu_used_bytes, "GPU memory in use {}"),
        (usage.host_memory_bytes, "host memory {}"),
    )
    found = [text.format(unit * value) for value, text, unit in figures if value is not None]
    found += [text.format(format_bytes(value)) for value, text in sizes if value is not None]
    return ", ".join(found)


def gpu_hours_text(hours: "GpuHours") -> str:
    """Return what became of GPU-hours, as one phrase."""
    return ", ".join(f"{value:.2f} {name}" for name, value in asdict(hours).items())

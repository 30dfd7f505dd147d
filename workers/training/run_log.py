"""What rank 0 writes into its log for people: how the run starts, each epoch, how it ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...jobs.run.design import seed_text
from ...jobs.run.metrics import MAIN, METRICS
from ...jobs.run.spec import RunSpec, seed_label
from ...jobs.units import format_bytes, format_duration
from ...jobs.workspace.lineage import Candidate

Scores = Mapping[str, Mapping[str, float]]
"""Set -> metric -> value."""

BETWEEN = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFacts:
    """An epoch that has ended."""

    epoch: int
    """From 1."""
    epochs: int
    metrics: Mapping[str, float]
    """Of training, as the journal has them."""
    scores: Scores
    """Empty if the epoch was not evaluated."""
    images_per_s: float | None
    memory_bytes: int | None
    """The most that this rank's GPU had allocated; None on the CPU."""
    left_s: float | None
    """Until the last epoch's end."""


@dataclass(frozen=True, slots=True)
class _Score:
    value: float
    epoch: int


class RunLog:
    """The lines of one attempt, each written whole and at once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._resumed = False
        self._best: dict[tuple[str, str], _Score] = {}
        self._last: dict[tuple[str, str], _Score] = {}

    def start(
        self, spec: RunSpec, *, world_size: int, attempt: int, resumed: Candidate | None
    ) -> None:
        """Say what is trained, and from where."""
        self._resumed = resumed is not None
        origin = (
            f"resumed from step {resumed.step} of attempt {resumed.attempt}"
            if resumed is not None
            else "from the beginning"
        )
        label = seed_label(spec.seeds)
        seed = seed_text(label or 0, spec.seeds if label is None else None)
        parts = (
            f"start  backbone {spec.backbone.model}",
            f"dataset {spec.dataset.name}",
            f"head {spec.head.name}",
            f"seed {seed}",
            f"world size {world_size}",
            f"epochs {spec.recipe.epochs}",
            f"attempt {attempt}",
            origin,
        )
        self._say(*parts)

    def note(self, text: str) -> None:
        """Say what is not as it might be."""
        self._say(f"note  {text}")

    def epoch(self, facts: EpochFacts) -> None:
        """Say what came of an epoch."""
        speed = "-" if facts.images_per_s is None else f"{facts.images_per_s:.0f}"
        left = "-" if facts.left_s is None else format_duration(facts.left_s)
        memory = [] if facts.memory_bytes is None else [f"mem {format_bytes(facts.memory_bytes)}"]
        self._say(
            f"epoch {facts.epoch}/{facts.epochs}",
            f"loss {facts.metrics['train_loss']:.4f}",
            f"lr {facts.metrics['lr']:.3g}",
            *(_of_set(name, metrics) for name, metrics in facts.scores.items()),
            f"{speed} img/s",
            *memory,
            f"eta {left}",
        )
        for name, metrics in facts.scores.items():
            self._note(name, metrics, facts.epoch)

    def end(self, how: str) -> None:
        """Say how the attempt ended, with the best and the last score on each set."""
        best = "best of this attempt" if self._resumed else "best"
        parts = [f"end  {how}"]
        for (name, metric), last in self._last.items():
            parts.append(f"{best} {_placed(name, metric, self._best[name, metric])}")
            parts.append(f"last {_placed(name, metric, last)}")
        self._say(*parts)

    def _note(self, name: str, metrics: Mapping[str, float], epoch: int) -> None:
        metric = next((name for name in MAIN.values() if name in metrics), "loss")
        found = _Score(metrics[metric], epoch)
        best = self._best.get((name, metric))
        sign = -1 if metric == "loss" else 1
        if best is None or sign * found.value > sign * best.value:
            self._best[name, metric] = found
        self._last[name, metric] = found

    def _say(self, *parts: str) -> None:
        # The metrics of somebody's own head may have any name.
        self._write(" ".join(BETWEEN.join(parts).splitlines()))


def _of_set(name: str, metrics: Mapping[str, float]) -> str:
    shown = [_text(metric, value) for metric, value in metrics.items() if _is_score(metric)]
    return " ".join([name, *shown])


def _is_score(metric: str) -> bool:
    return metric.removeprefix("ema_") != "n"


def _text(metric: str, value: float) -> str:
    is_percent = metric.removeprefix("ema_") in METRICS and not metric.endswith("loss")
    return f"{metric} {value:.2f}" if is_percent else f"{metric} {value:.4f}"


def _placed(name: str, metric: str, score: _Score) -> str:
    return f"{name} {_text(metric, score.value)} at epoch {score.epoch}"

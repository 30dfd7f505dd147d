"""Last and best score of a run, along its lineage."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from vtjobs.db import models as m
from vtjobs.db.ingest import ingest_live
from vtjobs.db.results import smaller_is_better

from ..support.ledgers import World, paper_grid


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    """SQLite alone: these tests are about numbers; test_report compares what both databases say."""
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


def results(world: World, metric: str = "top1") -> list[tuple[float, int, float, int]]:
    names = ("last", "last_epoch", "best", "best_epoch")
    return [
        tuple(row[name] for name in names)
        for row in world.rows(m.results)
        if row["metric"] == metric
    ]  # type: ignore[misc]


def attempt(
    world: World, run_id: str, number: int, scores: dict[int, float], *, resumed: tuple[int, int] | None = None,
    end: str = "completed", checkpoints: Sequence[int] = (),
) -> None:  # fmt: skip
    world.launch(run_id)
    world.start(run_id, number, resumed=resumed)
    for epoch, score in scores.items():
        world.epoch(run_id, number, epoch, score)
    for step in checkpoints:
        world.checkpoint(run_id, number, step)
    world.end(run_id, number, end, None if end == "completed" else "stopped")
    ingest_live(world.ledger, world.workspace)


@pytest.mark.parametrize(
    ("metric", "smaller"),
    [
        *(("loss", True), ("val_loss", True), ("top1", False), ("top5", False)),
        *(("error", True), ("top1_err", True), ("nll", True), ("mAP", False)),
    ],
)
def test_of_a_loss_the_smaller_is_the_better(metric: str, smaller: bool) -> None:
    assert smaller_is_better(metric) is smaller


@pytest.mark.paper("VA-02")
def test_the_last_epoch_counts_and_the_best_is_kept_apart(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 10.0, 1: 90.0, 2: 80.0})
    assert results(world) == [(80.0, 2, 90.0, 1)]
    assert results(world, "loss") == [(pytest.approx(1.2), 2, pytest.approx(1.1), 1)]


def test_of_equal_bests_the_first_is_named(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 10.0, 1: 90.0, 2: 90.0})
    assert results(world) == [(90.0, 2, 90.0, 1)]


def test_a_run_that_has_not_completed_has_no_result(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 10.0}, end="preempted")
    assert results(world) == []


def test_a_resumed_run_counts_what_lies_before_the_cut_once(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 70.0, 1: 95.0}, end="preempted", checkpoints=[10])
    # Epoch 1 was trained again; that first score belongs to steps that no weights of the run saw.
    attempt(world, run_id, 2, {1: 60.0, 2: 65.0}, resumed=(1, 10))
    assert results(world) == [(65.0, 2, 70.0, 0)]


def test_scores_behind_the_cut_never_count_even_where_the_successor_did_not_score(
    world: World,
) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 70.0, 1: 95.0}, end="preempted", checkpoints=[10])
    attempt(world, run_id, 2, {2: 65.0}, resumed=(1, 10))
    assert results(world) == [(65.0, 2, 70.0, 0)]


def test_a_lineage_may_leave_attempts_out(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 70.0}, end="preempted", checkpoints=[10])
    attempt(world, run_id, 2, {1: 99.0}, resumed=(1, 10), end="preempted")
    # Its checkpoint was damaged, so the third goes on from the first.
    attempt(world, run_id, 3, {2: 65.0}, resumed=(1, 10))
    assert results(world) == [(65.0, 2, 70.0, 0)]


def test_a_cut_holds_for_all_attempts_below_it(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 70.0, 1: 71.0, 2: 97.0}, end="preempted", checkpoints=[10, 20])
    attempt(world, run_id, 2, {2: 98.0, 3: 99.0}, resumed=(1, 20), end="preempted")
    attempt(world, run_id, 3, {2: 60.0, 3: 61.0}, resumed=(1, 20))
    assert results(world) == [(61.0, 3, 71.0, 1)]


def test_a_rerun_from_nothing_replaces_the_result_when_it_completes(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    attempt(world, run_id, 1, {0: 70.0, 1: 99.0})
    world.grant(run_id, clean=True)
    world.launch(run_id)
    world.start(run_id, 2)
    world.epoch(run_id, 2, 0, 20.0)
    ingest_live(world.ledger, world.workspace)
    assert results(world) == [(99.0, 1, 99.0, 1)], (
        "what was measured stays until there is something new"
    )
    world.epoch(run_id, 2, 1, 30.0)
    world.end(run_id, 2, "completed")
    ingest_live(world.ledger, world.workspace)
    assert results(world) == [(30.0, 1, 30.0, 1)]


@pytest.mark.paper("VA-04", "OR-08")
def test_test_sets_and_metrics_are_kept_apart_and_words_are_no_metrics(world: World) -> None:
    (run_id,) = world.submit(paper_grid())
    world.launch(run_id)
    world.start(run_id)
    for name, metrics in (
        ("test", {"top1": 50, "kind": "ema"}),
        ("shifted", {"top1": 20.5, "loss": 3.0}),
    ):
        world.write(run_id, 1, "evaluation", epoch=0, step=10, set=name, metrics=metrics)
    world.end(run_id, 1, "completed")
    ingest_live(world.ledger, world.workspace)
    found = {(row["set_name"], row["metric"]): row["last"] for row in world.rows(m.results)}
    assert found == {("test", "top1"): 50.0, ("shifted", "top1"): 20.5, ("shifted", "loss"): 3.0}

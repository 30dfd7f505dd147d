"""Submitting: idempotent, and repaired after a kill at any of its steps."""

import grp
import json
import os
import shlex
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, update

from vtjobs.db import models as m
from vtjobs.db.engine import reading, writing
from vtjobs.db.selected import select_ids
from vtjobs.jobs.atomic_files import read_json
from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.errors import BadInput, NothingMatched
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.orchestrator.backends.local import memory as local_memory
from vtjobs.orchestrator.loop.dispatch import LAUNCH_S
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.requests.submit import prepare, submit
from vtjobs.orchestrator.requests.summary import Estimate, summary

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab, SleepingBackend

# What changes something that outlives the process.
STEPS = ("write", "link", "unlink", "replace", "rename", "fsync", "mkdir", "ftruncate")


def test_a_second_submission_finds_nothing_new(quiet_lab: Lab) -> None:
    text = tiny_grid(seeds="3")
    first = submit(quiet_lab.context, quiet_lab.prepare(text))
    second = submit(quiet_lab.context, quiet_lab.prepare(text))
    assert (first.new, first.runs) == (3, 3)
    assert (second.new, second.pending) == (0, 3)


def test_a_submitted_grid_can_be_read_again_without_the_files_of_its_own_parts(
    quiet_lab: Lab, tmp_path: Path
) -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "smooth_tokens.py"
    head = tmp_path / "smooth_tokens.py"
    head.write_text(example.read_text())
    text = tiny_grid(seeds="2", heads=f'["{head}:SmoothTokens"]')
    prepared = quiet_lab.prepare(text)
    submit(quiet_lab.context, prepared)
    head.unlink()
    stored = quiet_lab.context.workspace.grid(prepared.frozen.grid_id) / "grid.yaml"
    assert take_in(str(stored)).expansion.runs == prepared.expansion.runs


def test_one_name_of_a_metric_is_one_function_in_a_workspace(
    quiet_lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    text = tiny_grid(seeds="1", extra=f'data: {{metrics: ["{path}:score"]}}')
    path.write_text("def score(logits, labels):\n    return 1.0\n")
    submit(quiet_lab.context, quiet_lab.prepare(text))
    submit(quiet_lab.context, quiet_lab.prepare(text))
    path.write_text("def score(logits, labels):\n    return 2.0\n")
    changed = quiet_lab.prepare(text)
    for request in (submit, summary):
        with pytest.raises(BadInput, match="score has another source or other arguments in grid"):
            request(quiet_lab.context, changed)


@pytest.mark.parametrize("scores", [False, True])
def test_a_metric_that_has_scored_no_run_may_be_mended_under_its_name(
    quiet_lab: Lab, tmp_path: Path, scores: bool
) -> None:
    path = tmp_path / "mine.py"
    text = tiny_grid(seeds="1", extra=f'data: {{metrics: ["{path}:score"]}}\nretries: 1')
    path.write_text("def score(logits, labels):\n    return 1 / 0\n")
    (run_id,) = quiet_lab.submit(text)
    quiet_lab.tick()
    evaluation = {"epoch": 1, "step": 8, "set": "test", "metrics": {"score": 1.0}}
    events = [("evaluation", evaluation)] if scores else []
    journal(quiet_lab, run_id, 1, started(), *events, ended("failed", "user_error"))
    quiet_lab.tick()
    path.write_text("def score(logits, labels):\n    return 1.0\n")
    with pytest.raises(BadInput, match="another source") if scores else nullcontext():
        submit(quiet_lab.context, quiet_lab.prepare(text))


@pytest.mark.parametrize(
    ("heads", "baseline", "warns"),
    [
        ("[relvit]", "supervised", True),
        ("[supervised, relvit]", "supervised", False),
        ("[relvit]", "each", False),
    ],
)
def test_a_declared_comparison_without_its_baseline_is_warned_of(
    quiet_lab: Lab, heads: str, baseline: str, warns: bool
) -> None:
    prepared = quiet_lab.prepare(tiny_grid(heads=heads, extra=f"compare: {{baseline: {baseline}}}"))
    assert any("no head is the baseline" in one for one in prepared.warnings) is warns


def test_two_grids_share_their_common_runs_and_an_edited_grid_adds_only_what_is_new(
    quiet_lab: Lab,
) -> None:
    submit(quiet_lab.context, quiet_lab.prepare(tiny_grid(name="one", seeds="2")))
    wider = submit(quiet_lab.context, quiet_lab.prepare(tiny_grid(name="two", seeds="3")))
    assert (wider.runs, wider.new) == (3, 1)


def test_an_edited_grid_counts_what_still_waits_of_the_one_before_and_its_command_cancels_just_that(
    quiet_lab: Lab,
) -> None:
    before = quiet_lab.submit(tiny_grid(name="edit", seeds="[0, 1, 2, 3]"))
    quiet_lab.submit(tiny_grid(name="other", seeds="[2]"))
    actions.cancel(quiet_lab.context, before[3:])
    edited = quiet_lab.prepare(tiny_grid(name="edit", seeds="[0, 9]"))
    planned = summary(quiet_lab.context, edited).leftover
    assert planned is not None and planned.runs == 1
    document = submit(quiet_lab.context, edited)
    assert document.leftover == planned
    command, what, *words = shlex.split(planned.cancel)
    assert (command, what) == ("vtjobs", "cancel")
    with reading(quiet_lab.context.ledger.engine) as connection:
        assert select_ids(connection, parse_selection(words)) == before[1:2]


def test_the_command_for_what_is_left_refuses_before_the_edited_grid_is_submitted(
    quiet_lab: Lab,
) -> None:
    quiet_lab.submit(tiny_grid(name="edit", seeds="[0, 1]"))
    planned = summary(quiet_lab.context, quiet_lab.prepare(tiny_grid(name="edit", seeds="[0]")))
    assert planned.leftover is not None
    words = shlex.split(planned.leftover.cancel)[2:]
    with reading(quiet_lab.context.ledger.engine) as connection, pytest.raises(NothingMatched):
        select_ids(connection, parse_selection(words))


def test_nothing_is_left_of_the_same_grid_or_of_one_that_was_widened(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="edit", seeds="2"))
    for seeds in ("2", "3"):
        prepared = quiet_lab.prepare(tiny_grid(name="edit", seeds=seeds))
        assert summary(quiet_lab.context, prepared).leftover is None


def test_a_group_that_shares_the_workspace_is_no_part_of_a_run(quiet_lab: Lab) -> None:
    alone = quiet_lab.prepare(tiny_grid())
    environ = {"HOME": str(quiet_lab.folder), "VTJOBS_GROUP": grp.getgrgid(os.getegid()).gr_name}
    config = load_config(environ=environ, folder=quiet_lab.folder)
    source, at = str(quiet_lab.folder / "grid.yaml"), alone.frozen.settings.submitted_at
    shared = prepare(config, source, changes={}, max_runs=10, at=at)
    assert shared.frozen == alone.frozen


def test_a_plan_writes_nothing(quiet_lab: Lab) -> None:
    context = quiet_lab.context
    before = sorted(path for path in quiet_lab.root.rglob("*") if "ledger" not in path.name)
    document = summary(context, quiet_lab.prepare(tiny_grid(seeds="3")))
    assert (document.new, document.allocations[0].runs) == (3, 3)
    assert sorted(path for path in quiet_lab.root.rglob("*") if "ledger" not in path.name) == before
    assert quiet_lab.states() == {}


def hours(estimate: Estimate) -> tuple[float | None, float | None, int]:
    return estimate.run_hours, estimate.gpu_hours, estimate.runs_without_history


def test_a_plan_says_how_much_it_cannot_estimate(quiet_lab: Lab) -> None:
    document = summary(quiet_lab.context, quiet_lab.prepare(tiny_grid(seeds="3")))
    assert hours(document.estimate) == (None, None, 3)
    assert document.estimate.eta is not None and document.estimate.eta.high_s is None


def test_a_plan_estimates_the_runs_with_history_and_counts_the_others(quiet_lab: Lab) -> None:
    seconds_of_runs(quiet_lab, tiny_grid(seeds="1"), 36.0)
    both = tiny_grid(seeds="2").replace(
        "backbones:", "backbones:\n  - vit_tiny_patch16_224: {depth: 1, patch_size: 8}"
    )
    document = summary(quiet_lab.context, quiet_lab.prepare(both))
    assert hours(document.estimate) == (0.01, 0, 2)


def test_a_plan_says_when_the_last_will_have_ended_had_it_the_machine_to_itself(
    quiet_lab: Lab,
) -> None:
    seconds_of_runs(quiet_lab, tiny_grid(seeds="1"), 36.0)
    four = quiet_lab.prepare(tiny_grid(seeds="5", extra="backend: {local: {slots: 2}}"))
    found = summary(quiet_lab.context, four).estimate.eta
    assert found is not None and found.low_s is not None and found.high_s is not None
    assert (found.basis, found.slots, found.unknown) == ("cell", 2, 0)
    assert (found.low_s + found.high_s) / 2 == pytest.approx(72.0)


@pytest.mark.parametrize(("here_gib", "warns"), [(7, True), (8, False)])
def test_a_plan_warns_of_runs_side_by_side_that_need_more_memory_than_their_host_has(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch, here_gib: int, warns: bool
) -> None:
    seconds_of_runs(quiet_lab, tiny_grid(seeds="1"), 36.0)
    usage = json.dumps({"host_memory_bytes": 2 << 30})
    with writing(quiet_lab.context.ledger.engine) as connection:
        connection.execute(update(m.attempts).values(usage=usage))
    monkeypatch.setattr(local_memory, "memory_bytes", lambda: here_gib << 30)
    four = tiny_grid(heads="[relvit]", seeds="9", extra="backend: {local: {slots: 4}}")
    found = summary(quiet_lab.context, quiet_lab.prepare(four)).warnings
    told = [text for text in found if "host memory" in text]
    assert told == warns * [
        "earlier runs of these backbones on these datasets took up to 2.0 GiB of host memory each,"
        " and 4 at a time share 7.0 GiB. Train fewer at a time: backend: {local: {slots: 3}} in the grid file"
    ]


def test_a_plan_that_has_nothing_to_do_has_no_end(quiet_lab: Lab) -> None:
    seconds_of_runs(quiet_lab, tiny_grid(seeds="1"), 36.0)
    done = summary(quiet_lab.context, quiet_lab.prepare(tiny_grid(seeds="1")))
    assert done.estimate.eta is None


def test_a_cell_without_history_is_estimated_from_its_backbone_and_dataset_by_epochs(
    quiet_lab: Lab,
) -> None:
    seconds_of_runs(quiet_lab, tiny_grid(seeds="1", epochs=2), 36.0)
    longer = quiet_lab.prepare(tiny_grid(heads="[relvit]", seeds="1", epochs=4))
    document = summary(quiet_lab.context, longer)
    assert hours(document.estimate) == (0.02, 0, 0)


def seconds_of_runs(lab: Lab, text: str, seconds: float) -> None:
    """Let the runs of a grid have completed, each in this time."""
    lab.submit(text)
    lab.tick()
    with writing(lab.context.ledger.engine) as connection:
        connection.execute(
            update(m.attempts).values(state="completed", started_at=0.0, ended_at=seconds)
        )
        connection.execute(update(m.runs).values(state="completed"))


def test_resources_that_this_machine_has_not_are_refused_before_anything_is_written(
    quiet_lab: Lab,
) -> None:
    text = tiny_grid().replace("gpus_per_node: 0", "gpus_per_node: 0, cpu_ranks: 64, threads: 64")
    with pytest.raises(BadInput, match=r"grid.yaml:\d+: resources"):
        quiet_lab.submit(text)
    assert not list(quiet_lab.context.workspace.grids.iterdir())


def test_ranks_that_cannot_carry_the_virtual_ranks_are_refused(quiet_lab: Lab) -> None:
    text = tiny_grid(train="virtual_ranks: 1").replace(
        "gpus_per_node: 0", "gpus_per_node: 0, cpu_ranks: 2"
    )
    with pytest.raises(BadInput, match="1 virtual ranks cannot be divided evenly among 2 ranks"):
        quiet_lab.submit(text)


@pytest.mark.training
def test_a_submission_killed_at_any_step_is_completed_by_the_next_one_and_nothing_is_doubled(
    quiet_lab: Lab, tmp_path: Path
) -> None:
    text = tiny_grid(seeds="2")
    quiet_lab.prepare(text)
    step = 1
    while True:
        lab = Lab(tmp_path / f"killed-{step}", asleep=True)
        lab.folder.mkdir()
        status = submit_in_child(lab, text, kill_at=step)
        survived = status == 0
        assert survived or os.WTERMSIG(status) == signal.SIGKILL, f"step {step}: status {status}"
        again(lab, text)
        if survived:
            break
        step += 1
    assert step > 40, "the steps are not counted"


def again(lab: Lab, text: str) -> None:
    """Submit again after a kill, and once more when the dead submitter's time is over.

    Look at every trace.
    """
    lab.submit(text)
    lab.tick()
    lab.clock.ahead_s = LAUNCH_S + 1
    lab.tick()
    lab.tick()
    runs = lab.submit(text)
    assert set(lab.states()) == set(runs) and set(lab.states().values()) == {"queued"}
    backend = lab.context.backend("local")
    assert isinstance(backend, SleepingBackend)
    hosted: Counter[str] = Counter()
    for token, _ in backend.queue.waiting():
        content = Allocation.from_dict(read_json(lab.context.workspace.allocation(token)))
        hosted.update(task.run_id for task in content.all_tasks)
    assert hosted == Counter(runs)
    assert all(len(lab.attempts(run_id)) == 1 for run_id in runs)
    lab.context.ledger.engine.dispose()


def submit_in_child(lab: Lab, text: str, *, kill_at: int) -> int:
    """Submit in a process that is killed by the kernel just before its n-th step.

    Return how it ended.
    """
    pid = os.fork()
    if pid == 0:
        try:
            count = arm(kill_at)
            lab.submit(text)
            lab.tick()
            lab.tick()
            assert count() < kill_at
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def arm(kill_at: int) -> Callable[[], int]:
    """Have every step of this process counted, database commits included, and the n-th one be its
    last.
    """
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            step()
            return function(*positional, **named)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    event.listen(Engine, "commit", lambda _: step())
    return lambda: steps


def test_a_batch_larger_than_the_training_set_is_no_run(quiet_lab: Lab) -> None:
    text = tiny_grid(train="drop_last: true").replace("batch_size: 128", "batch_size: 1024")
    with pytest.raises(
        BadInput, match=r"train.batch_size: digits: 899 training images are fewer than one batch"
    ):
        quiet_lab.prepare(text)

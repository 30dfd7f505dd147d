"""What goes wrong with ranks, and what their agent makes of it.

Template and ranks are real and warm.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.jobs.workspace.journal import JournalWriter, read_all
from vtjobs.orchestrator.requests import actions
from vtjobs.workers.agent import attempt as hosted_module
from vtjobs.workers.agent import progress, rank_group
from vtjobs.workers.agent.attempt import HostedRun
from vtjobs.workers.agent.template_client import Forge
from vtjobs.workers.checkpoints.manifest import verify
from vtjobs.workers.process import DUMP_SIGNAL

from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import Lab, a_template, is_running, serve, wait_for


def endless(**changes: str) -> str:
    return tiny_grid(seeds="1", epochs=ENDLESS, **changes)


def has_saved(hosted: HostedRun) -> bool:
    return hosted.checkpoint_step > hosted.start_step


def log_of(lab: Lab, hosted: HostedRun, rank: int = 0) -> str:
    return (lab.run(hosted.task.run_id).logs(hosted.task.attempt) / f"rank-{rank}.log").read_text()


# Ranks that die or freeze -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_takes_its_peers_with_it_and_is_the_one_that_is_blamed(
    lab: Lab, forge: Forge, number: signal.Signals
) -> None:
    (run_id,) = lab.submit(endless(train="virtual_ranks: 2"))
    hosted = lab.host(lab.allocate([run_id], ranks=2), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    pids = [rank.pid for rank in hosted.ranks.processes]
    os.kill(pids[1], number)
    serve(forge, hosted, seconds=10)
    assert not any(is_running(pid) for pid in pids)
    assert (hosted.ended.state, hosted.ended.failure) == (AttemptState.FAILED, FailureClass.CRASH)
    assert hosted.ended.signature == f"rank killed by {number.name}"
    assert hosted.ended.rank == 1
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "pending"


def test_a_frozen_rank_is_noticed_its_stacks_are_kept_and_all_ranks_are_killed(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(endless(train="virtual_ranks: 2"))
    hosted = lab.host(lab.allocate([run_id], ranks=2, hang_s=8.0), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    pids = [rank.pid for rank in hosted.ranks.processes]
    os.kill(pids[1], signal.SIGSTOP)
    serve(forge, hosted, seconds=120)
    assert (hosted.ended.state, hosted.ended.failure) == (AttemptState.FAILED, FailureClass.HANG)
    assert not any(is_running(pid) for pid in pids)
    for rank in (0, 1):
        assert "most recent call first" in log_of(lab, hosted, rank)


def test_a_retry_goes_on_from_the_checkpoint_and_ends_with_the_weights_of_an_undisturbed_run(
    lab: Lab, forge: Forge
) -> None:
    disturbed, undisturbed = (
        lab.submit(tiny_grid(epochs=40, seeds="[0, 1]")),
        Lab(lab.folder / "other"),
    )
    undisturbed.folder.mkdir()
    run_id = disturbed[0]
    undisturbed.submit(tiny_grid(epochs=40, seeds="[0, 1]"))
    straight = undisturbed.host(undisturbed.allocate([run_id]), forge)
    first = lab.host(lab.allocate([run_id], checkpoint_every_s=0), forge)
    serve(forge, straight, first, until=lambda: has_saved(first))
    os.kill(first.ranks.processes[0].pid, signal.SIGKILL)
    serve(forge, straight, first)
    ingest_live(lab.context.ledger, lab.context.workspace)
    second = lab.host(lab.allocate([run_id]), forge)
    serve(forge, second)
    start = lab.record(run_id, 2).start
    assert (
        start is not None and start.resumed_attempt == 1 and start.resumed_step >= 1 and start.exact
    )
    assert second.ended.state is AttemptState.COMPLETED
    assert lab.weights(run_id) == undisturbed.weights(run_id)


def test_when_the_template_is_killed_its_ranks_die_and_the_attempt_can_be_tried_again(
    lab: Lab,
) -> None:
    (run_id,) = lab.submit(endless())
    with a_template() as own:
        hosted = lab.host(lab.allocate([run_id]), own)
        serve(own, hosted, until=lambda: hosted.ranks.processes[0].pid is not None)
        pid = hosted.ranks.processes[0].pid
        own.process.kill()
        own.process.wait()
        wait_for(lambda: not is_running(pid), 10)
        hosted.template_died("killed")
    assert (hosted.ended.state, hosted.ended.failure) == (AttemptState.FAILED, FailureClass.CRASH)
    assert lab.record(run_id, 1).end is not None


@pytest.mark.paper("CA-03")
def test_a_diverged_loss_is_an_outcome_that_is_not_tried_again(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=20, train="lr: 1e30, clip_grad: null"))
    hosted = lab.host(lab.allocate([run_id], checkpoint_every_s=0), forge)
    serve(forge, hosted)
    assert (hosted.ended.state, hosted.ended.failure) == (
        AttemptState.FAILED,
        FailureClass.DIVERGED,
    )
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "diverged"


# Fencing ------------------------------------------------------------------------------------------


def test_a_zombie_ends_superseded_soon_after_a_higher_claim_and_its_checkpoints_are_not_adopted(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(endless())
    zombie = lab.host(lab.allocate([run_id], checkpoint_every_s=0), forge)
    serve(forge, zombie, until=lambda: has_saved(zombie))
    adopted = zombie.checkpoint_step
    lab.context.ledger.transition(run_id, 1, AttemptState.LOST, source="test")
    heir = lab.host(lab.allocate([run_id], checkpoint_every_s=3600), forge)
    serve(forge, zombie, heir, until=lambda: zombie.ended is not None, seconds=5)
    assert zombie.ended.state is AttemptState.SUPERSEDED
    heir.stop(AttemptState.PREEMPTED)
    serve(forge, heir)
    assert lab.record(run_id, 2).start.resumed_step >= adopted
    assert lab.record(run_id, 1).end.state == "superseded"
    assert lab.attempts(run_id)[0].state == "lost"


def test_a_late_completion_of_a_zombie_is_kept_in_its_journal_and_never_adopted(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1))
    first = lab.host(lab.allocate([run_id]), forge)
    # The higher attempt has started, and the lower one does not look before it has finished.
    first._fence_at = float("inf")
    attempt = lab.run(run_id).attempt(2)
    attempt.mkdir(parents=True)
    JournalWriter(attempt / "journal-0.jsonl").write(
        "start", at=1.0, attempt=2, resumed_attempt=None, resumed_step=None
    )
    serve(forge, first)
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert first.ended.state is AttemptState.COMPLETED
    assert lab.attempts(run_id)[0].state == "superseded"
    assert lab.state(run_id) == "pending"


def test_an_attempt_refuses_to_start_where_a_lower_one_has_completed(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1))
    first = lab.host(lab.allocate([run_id]), forge)
    serve(forge, first)
    lab.context.ledger.transition(run_id, 1, AttemptState.LOST, source="test")
    late = lab.host(lab.allocate([run_id]), forge)
    assert late.ended is not None and late.ended.state is AttemptState.SUPERSEDED
    assert late.ended.signature == "attempt 1 completed the run"
    assert not late.ranks.processes


def test_the_same_attempt_started_twice_disturbs_nobody(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1))
    allocation = lab.allocate([run_id])
    first, second = lab.host(allocation, forge), lab.host(allocation, forge)
    assert second.ended is not None and second.ended.state is AttemptState.SUPERSEDED
    serve(forge, first)
    assert first.ended.state is AttemptState.COMPLETED
    assert len(read_all(lab.run(run_id).journal(1, 0))) >= 4


def test_a_cancelled_run_stops_within_the_fence_interval_and_keeps_what_it_has(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(endless())
    hosted = lab.host(lab.allocate([run_id], checkpoint_every_s=3600), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    lab.run(run_id).cancel(1)
    serve(forge, hosted, seconds=10)
    assert hosted.ended.state is AttemptState.CANCELLED
    assert has_saved(hosted)


def test_a_cancelled_run_does_not_start(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(endless())
    allocation = lab.allocate([run_id])
    lab.run(run_id).cancel(1)
    hosted = lab.host(allocation, forge)
    assert hosted.ended is not None and hosted.ended.state is AttemptState.CANCELLED
    assert lab.run(run_id).highest_claim() == 0


# Disk, data, logs, ports --------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(
            f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}"
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, *, leave_bytes: int = 0) -> Path:
    """Fill a file system to the last byte, or nearly."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            while os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - size >= leave_bytes:
                stream.write(bytes(size))
    return filler


def test_a_full_disk_ends_the_attempt_as_storage_and_leaves_the_old_checkpoint_intact(
    lab: Lab, forge: Forge, small_disk: Path
) -> None:
    small = Lab(small_disk)
    (run_id,) = small.submit(endless())
    hosted = small.host(small.allocate([run_id], checkpoint_every_s=1), forge)
    serve(forge, hosted, until=lambda: has_saved(hosted))
    filler = fill(small_disk, leave_bytes=16 << 10)
    serve(forge, hosted, seconds=20)
    assert (hosted.ended.state, hosted.ended.failure) == (AttemptState.FAILED, FailureClass.STORAGE)
    filler.unlink()
    verify(small.run(run_id).checkpoint(1, hosted.checkpoint_step), run_id=run_id)
    ingest_live(small.context.ledger, small.context.workspace)
    assert small.state(run_id) == "pending"
    small.context.ledger.transition(run_id, 1, AttemptState.LOST, source="test")
    again = small.host(small.allocate([run_id]), forge)
    again.stop(AttemptState.PREEMPTED)
    serve(forge, again)
    assert small.record(run_id, 2).start.resumed_step == hosted.checkpoint_step
    small.context.ledger.engine.dispose()


@pytest.mark.parametrize("where", ["make_folder", "write_environment"])
def test_a_disk_that_is_full_at_the_start_is_storage_and_does_not_end_the_agent(
    lab: Lab, forge: Forge, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hosted_module, where, full)
    (run_id,) = lab.submit(endless())
    hosted = lab.host(lab.allocate([run_id]), forge)
    assert hosted.ended is not None and hosted.ended.failure is FailureClass.STORAGE


def test_a_journal_that_cannot_grow_still_gets_its_end_record(
    lab: Lab, forge: Forge, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_S", 0.0)
    small = Lab(small_disk)
    (run_id,) = small.submit(endless())
    hosted = small.host(small.allocate([run_id], checkpoint_every_s=3600), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    filler = fill(small_disk)
    serve(forge, hosted, seconds=60)
    end = small.record(run_id, 1).end
    assert end is not None and (end.state, end.failure) == ("failed", "storage")
    filler.unlink()
    small.context.ledger.engine.dispose()


def test_data_that_vanishes_before_the_start_is_tried_once_more_and_later(
    lab: Lab, forge: Forge, tmp_path: Path
) -> None:
    data = image_folder(tmp_path / "shapes")
    text = tiny_grid(seeds="1", epochs=1).replace("[digits]", f"['{data}']")
    (run_id,) = lab.submit(text)
    spec = json.loads(lab.prepare(text).frozen.cells[0].spec.dataset)
    shutil.rmtree(data)
    allocation = lab.allocate([run_id], paths={spec["fingerprint"]: str(data)})
    hosted = lab.host(allocation, forge)
    serve(forge, hosted)
    assert hosted.ended.state == AttemptState.FAILED
    assert hosted.ended.failure == FailureClass.DATA_MISSING
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "pending"
    lab.tick()
    assert len(lab.attempts(run_id)) == 1, "the second try waits"


def test_a_damaged_image_is_named_and_ends_the_run_without_another_try(
    lab: Lab, forge: Forge, tmp_path: Path
) -> None:
    data = image_folder(tmp_path / "shapes")
    image = data / "train" / "dark" / "3.png"
    image.write_bytes(image.read_bytes()[:60])
    text = tiny_grid(seeds="1", epochs=1).replace("[digits]", f"['{data}']")
    (run_id,) = lab.submit(text)
    spec = json.loads(lab.prepare(text).frozen.cells[0].spec.dataset)
    hosted = lab.host(lab.allocate([run_id], paths={spec["fingerprint"]: str(data)}), forge)
    serve(forge, hosted)
    assert (hosted.ended.state, hosted.ended.failure) == (AttemptState.FAILED, FailureClass.DATA)
    assert str(image) in hosted.ended.error
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "failed"


def image_folder(place: Path) -> Path:
    """Write a data set of two classes, 16 images each split."""
    from PIL import Image

    for split in ("train", "test"):
        for label, level in (("dark", 40), ("light", 200)):
            (place / split / label).mkdir(parents=True)
            for index in range(8):
                Image.new("RGB", (16, 16), (level, index, 0)).save(
                    place / split / label / f"{index}.png"
                )
    return place


def test_a_log_flood_is_capped_and_its_beginning_and_end_are_kept(
    lab: Lab, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap = 30_000
    monkeypatch.setattr(rank_group, "LOG_CAP_BYTES", cap)
    (run_id,) = lab.submit(endless())
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    asked = 0

    def flood() -> bool:
        nonlocal asked
        for _ in range(20):
            os.kill(hosted.ranks.processes[0].pid, DUMP_SIGNAL)
        asked += 20
        return asked >= 1000

    serve(forge, hosted, until=flood)
    hosted.stop(AttemptState.PREEMPTED)
    serve(forge, hosted)
    folder = lab.run(run_id).logs(1)
    assert {path.name for path in folder.iterdir()} == {
        "rank-0.log",
        "rank-0.log.head",
        "rank-0.log.previous",
    }
    assert cap // 2 < sum(path.stat().st_size for path in folder.iterdir()) <= cap
    assert hosted.ended.failure is FailureClass.STOPPED


def test_two_runs_of_two_ranks_share_a_machine_without_a_collision_of_ports(
    lab: Lab, forge: Forge
) -> None:
    runs = lab.submit(tiny_grid(epochs=2, train="virtual_ranks: 2"))
    allocation = lab.allocate(runs, ranks=2, lanes=2)
    both = [lab.host(allocation, forge, position=index) for index in (0, 1)]
    serve(forge, *both)
    assert [one.ended.state for one in both] == [AttemptState.COMPLETED] * 2


def test_a_stop_is_obeyed_at_a_common_step_by_all_ranks(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(endless(train="virtual_ranks: 2"))
    hosted = lab.host(lab.allocate([run_id], ranks=2, checkpoint_every_s=3600), forge)
    serve(forge, hosted, until=lambda: hosted.position.get("step", 0) > 0)
    hosted.stop(AttemptState.PREEMPTED)
    serve(forge, hosted, seconds=10)
    assert (hosted.ended.state, hosted.ended.failure) == (
        AttemptState.PREEMPTED,
        FailureClass.STOPPED,
    )
    assert hosted.ended.exit_code == 75
    assert has_saved(hosted)


def test_a_held_run_does_not_start_and_costs_no_try(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(endless())
    allocation = lab.allocate([run_id])
    actions.hold(lab.context, [run_id])
    hosted = lab.host(allocation, forge)
    assert (hosted.ended.state, hosted.ended.failure) == (
        AttemptState.SUPERSEDED,
        FailureClass.SKIPPED,
    )
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "pending"


def test_damaged_checkpoints_are_a_failure_and_never_a_silent_fresh_start(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(endless())
    first = lab.host(lab.allocate([run_id], checkpoint_every_s=0), forge)
    serve(forge, first, until=lambda: has_saved(first))
    first.stop(AttemptState.PREEMPTED)
    serve(forge, first)
    ingest_live(lab.context.ledger, lab.context.workspace)
    for path in lab.run(run_id).checkpoints(1).glob("step-*/model.safetensors"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    second = lab.host(lab.allocate([run_id]), forge)
    assert second.ended is not None and second.ended.failure is FailureClass.NO_CHECKPOINT
    events = read_all(lab.run(run_id).journal(2, 0))
    assert [event["kind"] for event in events].count("rejected") >= 1
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.state(run_id) == "failed"


def test_what_an_attempt_ran_on_is_written_down(lab: Lab, forge: Forge) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted)
    facts = json.loads((lab.run(run_id).attempt(1) / "environment.json").read_text())
    assert facts["software"]["torch"] and facts["host"] and facts["executable"] == sys.executable

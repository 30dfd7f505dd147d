"""The queue of this machine: its files, its one runner, and agents that it starts for real.

An allocation without tasks gets a real agent that ends at once: nothing to fork, nothing to import.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.jobs.atomic_files import read_json, to_json, write_new, write_over
from vtjobs.jobs.config.host import clean_environment, cpu_count
from vtjobs.jobs.config.node import Queued
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.values import asdict, changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.journal import LEASE_S
from vtjobs.jobs.workspace.paths import Workspace, WorkspaceUnreadable
from vtjobs.orchestrator.backends.base import JobState, JobView, Place, Room, SubmitOutcome
from vtjobs.orchestrator.backends.local import queue_process
from vtjobs.orchestrator.backends.local.backend import (
    LOCK,
    LocalBackend,
)
from vtjobs.orchestrator.backends.local.entries import (
    End,
    Need,
    ProcessIdentity,
    Running,
    process_identity,
    read,
    write,
)
from vtjobs.orchestrator.backends.local.on_node import LocalNode
from vtjobs.orchestrator.backends.local.queue_process import TICK_S, Runner

from ...support.grid_settings import grid_settings
from ...support.lab import wait_for


def allocation(
    workspace: Workspace,
    number: int,
    *,
    ranks: int = 1,
    gpus: int = 0,
    tasks: tuple[Task, ...] = (),
) -> Allocation:
    """Write down an allocation that hosts nothing, or these."""
    made = Allocation(
        token=f"vtj-{number:016x}", created_at=float(number), lanes=1, tasks=(tasks,), data_root="/none",
        shape=Shape(backend="local", ranks=ranks, gpus=gpus),
    )  # fmt: skip
    write_new(workspace.allocation(made.token), to_json(made.to_dict()))
    return made


@pytest.fixture
def backend(quiet_workspace: Workspace) -> LocalBackend:
    return LocalBackend(quiet_workspace)


def test_the_queue_says_when_it_has_started_an_allocation_or_is_about_to(
    backend: LocalBackend, quiet_workspace: Workspace
) -> None:
    first, second = allocation(quiet_workspace, 1), allocation(quiet_workspace, 2)
    began = time.time()
    backend.submit(first)
    backend.submit(second)
    about = backend.queue.view(first.token).starts_at
    assert about is not None and about == pytest.approx(began, abs=60)
    pretend_running(backend, first.token, os.getpid())
    assert backend.queue.view(first.token).starts_at is not None
    assert backend.queue.view(second.token).starts_at is None


def pretend_running(backend: LocalBackend, token: str, pid: int) -> Running:
    """Note a process as the agent of an allocation."""
    identity = process_identity(pid) or ProcessIdentity(pid=pid, started="", boot="")
    entry = Running(**asdict(identity), gpus=[], cores=1)
    write(backend.queue.folder("running") / f"{token}.json", entry)
    return entry


def look(backend: LocalBackend, *tokens: str) -> list[JobView]:
    """Return what the queue says about allocations, in this order."""
    views = backend.observe([Place(token=token) for token in tokens])
    return [views[token, 0] for token in tokens]


def room(backend: LocalBackend, *, ranks: int, gpus: int, slots: int | None) -> Room:
    return backend.room(
        Shape(backend="local", ranks=ranks, gpus=gpus), grid_settings(site={"slots": slots})
    )


def test_a_grid_whose_agent_has_all_lanes_is_given_no_second_agent(backend: LocalBackend) -> None:
    asked = {"ranks": 1, "gpus": 0, "slots": 1}
    assert list(room(backend, **asked).free.values()) == [1]
    task = Task(run_id="0a", attempt=1, grid_id=grid_settings().grid_id)
    pretend_running(backend, allocation(backend.workspace, 1, tasks=(task,)).token, os.getpid())
    assert list(room(backend, **asked).free.values()) == [0]
    more = room(backend, **asked | {"slots": 2}).free
    assert list(more.values()) == [1], "a lane more could be used"


def test_a_grid_whose_agent_waits_for_its_turn_is_given_no_second_turn(
    backend: LocalBackend,
) -> None:
    task = Task(run_id="0a", attempt=1, grid_id=grid_settings().grid_id)
    made = allocation(backend.workspace, 1, tasks=(task,))
    backend.submit(made)
    assert list(room(backend, ranks=1, gpus=0, slots=1).free.values()) == [1]
    path = backend.workspace.allocation(made.token)
    write_over(path, to_json(changed(made, handed_on=True).to_dict()))
    assert list(room(backend, ranks=1, gpus=0, slots=1).free.values()) == [0]


def test_an_agent_sees_who_waits_for_the_cores_that_it_has(backend: LocalBackend) -> None:
    mine, other = (allocation(backend.workspace, number) for number in (1, 2))
    with_gpus = allocation(backend.workspace, 3, gpus=1)
    pretend_running(backend, mine.token, os.getpid())
    for one in (other, with_gpus):
        backend.submit(one)
    assert LocalNode().queue(backend.workspace, mine.token) == [
        Queued(token=mine.token, waits=False),
        Queued(token=other.token, waits=True),
    ]


def test_several_nodes_are_bad_input(backend: LocalBackend) -> None:
    with pytest.raises(BadInput, match="nodes: 2 nodes requested, this is one machine"):
        backend.room(Shape(backend="local", nodes=2), grid_settings())


def test_a_submission_is_accepted_once_and_harmless_the_second_time(backend: LocalBackend) -> None:
    made = allocation(backend.workspace, 1)
    assert [backend.submit(made).outcome for _ in range(2)] == [SubmitOutcome.ACCEPTED] * 2
    assert [token for token, _ in backend.queue.waiting()] == [made.token]


def test_what_has_run_is_not_queued_again(backend: LocalBackend) -> None:
    made = allocation(backend.workspace, 1)
    write_new(
        backend.queue.folder("ended") / f"{made.token}.json", to_json({"code": 0, "word": "exit 0"})
    )
    backend.submit(made)
    assert backend.queue.waiting() == []
    assert look(backend, made.token)[0].state is JobState.ENDED


def test_the_queue_is_served_in_the_order_of_submission(backend: LocalBackend) -> None:
    for number in (3, 1, 2):
        backend.submit(allocation(backend.workspace, number))
    assert [token[-1] for token, _ in backend.queue.waiting()] == ["1", "2", "3"]


def test_every_allocation_is_somewhere_or_absent(backend: LocalBackend) -> None:
    tokens = [allocation(backend.workspace, number).token for number in range(5)]
    backend.queue.add(Allocation.from_dict(read_json(backend.workspace.allocation(tokens[0]))))
    pretend_running(backend, tokens[1], os.getpid())
    gone = subprocess.Popen(["sleep", "60"])
    pretend_running(backend, tokens[2], gone.pid)
    gone.kill()
    gone.wait()
    write_new(
        backend.queue.folder("ended") / f"{tokens[3]}.json",
        to_json({"code": 75, "word": "exit 75"}),
    )
    views = look(backend, *tokens)
    assert [view.state for view in views] == [
        JobState.QUEUED, JobState.RUNNING, JobState.ENDED, JobState.ENDED, JobState.ABSENT,
    ]  # fmt: skip
    assert views[3].raw == "exit 75"


def test_another_process_with_the_same_number_is_not_taken_for_the_agent(
    backend: LocalBackend,
) -> None:
    identity = process_identity(os.getpid())
    assert identity is not None and identity.is_alive
    assert not changed(identity, started="1").is_alive
    assert not changed(identity, boot="before the reboot").is_alive


def test_a_cancelled_entry_leaves_the_queue_and_says_so(backend: LocalBackend) -> None:
    made = allocation(backend.workspace, 1)
    backend.submit(made)
    backend.cancel([Place(token=made.token)])
    view = look(backend, made.token)[0]
    assert (view.state, view.raw) == (JobState.ENDED, "cancelled in the queue")
    assert backend.queue.waiting() == []


def test_cancelling_signals_the_agent_that_we_started_and_no_other_process(
    backend: LocalBackend,
) -> None:
    ours, stranger = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    pretend_running(backend, "vtj-1", ours.pid)
    entry = pretend_running(backend, "vtj-2", stranger.pid)
    backend.queue.entry("running", "vtj-2").write_bytes(
        to_json(to_plain(changed(entry, started="1")))
    )
    backend.cancel([Place(token="vtj-1"), Place(token="vtj-2")])
    assert ours.wait(timeout=10) == -signal.SIGTERM
    time.sleep(0.1)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_more_than_this_machine_has_is_bad_input(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(BadInput, match="3 requested, this machine has 2"):
        room(backend, ranks=3, gpus=3, slots=None)
    with pytest.raises(BadInput, match=f"this machine has {cpu_count()}"):
        room(backend, ranks=cpu_count() + 1, gpus=0, slots=None)


def test_as_many_runs_share_the_machine_as_its_cores_or_gpus_carry(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert room(backend, ranks=1, gpus=1, slots=None).lanes == 4
    assert room(backend, ranks=2, gpus=2, slots=None).lanes == 2
    assert room(backend, ranks=1, gpus=1, slots=3).lanes == 3
    assert room(backend, ranks=1, gpus=0, slots=None).lanes == cpu_count()
    assert room(backend, ranks=cpu_count(), gpus=0, slots=None).lanes == 1


def test_agents_inherit_no_secrets_and_no_other_schedulers_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "VTJOBS_LEDGER",
        "PGPASSWORD",
        "SLURM_JOB_ID",
        "SBATCH_PARTITION",
        "PMI_RANK",
        "MASTER_PORT",
        "RANK",
    ):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("VTJOBS_FENCE_S", "3")
    # Names a cluster, not a job: without it a command may not find the controller.
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    found = clean_environment()
    assert "canary" not in found.values()
    assert found["VTJOBS_FENCE_S"] == "3"
    assert found["SLURM_CONF"] == "/etc/slurm/slurm.conf"


def test_an_agent_inherits_of_the_shells_keys_only_what_its_grid_names(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, program = tmp_path / "agent.env", tmp_path / "python"
    program.write_text(f"#!/bin/sh\nenv > {found}.part\nmv {found}.part {found}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("WANDB_API_KEY", "named")
    monkeypatch.setenv("HF_TOKEN", "canary")
    settings = grid_settings(site={"environment": ["WANDB_API_KEY"]})
    room = backend.room(Shape(backend="local"), settings)
    made = changed(allocation(backend.workspace, 1), site=room.site)
    write_over(backend.workspace.allocation(made.token), to_json(made.to_dict()))
    backend.queue.add(made)
    Runner(backend.workspace).tick()
    wait_for(found.exists)
    assert "WANDB_API_KEY=named" in found.read_text()
    assert "canary" not in found.read_text()


def test_the_runner_serves_the_queue_notes_how_each_agent_ended_and_goes(
    backend: LocalBackend,
) -> None:
    tokens = [allocation(backend.workspace, number).token for number in range(3)]
    for token in tokens[:2]:
        backend.queue.add(Allocation.from_dict(read_json(backend.workspace.allocation(token))))
    # What an agent cannot read, it says by its exit code.
    write_new(
        backend.queue.folder("queue") / "vtj-none.json",
        to_json({"created_at": 9.0, "gpus": 0, "cores": 1}),
    )
    backend.wake()
    ended = backend.queue.folder("ended")
    wait_for(lambda: len(list(ended.glob("vtj-*.json"))) == 3, 30)
    codes = {path.stem: read_json(path)["code"] for path in ended.glob("vtj-*.json")}
    assert codes == {tokens[0]: 0, tokens[1]: 0, "vtj-none": 71}
    # How it ended is written before what stands among the running is removed.
    wait_for(lambda: backend.queue.waiting() == [] and backend.queue.running() == {}, 10)
    wait_for(lambda: lock_is_free(backend), 10)


def lock_is_free(backend: LocalBackend) -> bool:
    with backend.queue.lock() as free:
        return free


@pytest.fixture
def mounted(mount: Path) -> LocalBackend:
    """The backend of a workspace that `away` takes away for a while."""
    return LocalBackend(Workspace(mount / "runs").create())


@contextlib.contextmanager
def away(mount: Path) -> Iterator[None]:
    """Unmount the file system."""
    disk = mount.readlink()
    mount.unlink()
    yield
    mount.symlink_to(disk)


def test_a_queue_makes_nothing_where_its_workspace_is_away(
    mounted: LocalBackend, mount: Path
) -> None:
    queue = mounted.queue
    with away(mount):
        for act in (queue.show_life, queue.lock, lambda: queue.folder("ended")):
            with pytest.raises(WorkspaceUnreadable, match="Is the file system mounted"):
                act()


def test_a_runner_waits_for_its_agents_where_the_workspace_is_away(
    mounted: LocalBackend, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_process, "LINGER_S", 2 * TICK_S)
    made = allocation(mounted.workspace, 1)
    mounted.queue.add(made)
    runner = Runner(mounted.workspace)
    runner.tick()
    (agent,) = mounted.queue.running().values()
    os.kill(agent.pid, signal.SIGSTOP)
    thread = threading.Thread(target=runner.run, daemon=True)
    try:
        with away(mount):
            thread.start()
            thread.join(4 * TICK_S)
            assert thread.is_alive() and not mount.exists()
    finally:
        os.kill(agent.pid, signal.SIGCONT)
    thread.join(30)
    assert not thread.is_alive()
    assert read_json(mounted.queue.entry("ended", made.token)) == {"code": 0, "word": "exit 0"}


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: process_identity(pid) is None, 30)


@pytest.mark.parametrize("waits", [False, True], ids=["running", "waiting"])
def test_a_restarted_runner_waits_for_what_it_took_over_where_the_workspace_is_away(
    mounted: LocalBackend, mount: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(queue_process, "LINGER_S", 2 * TICK_S)
    # No child of this process: the runner is in it, and would learn its exit code.
    sleep = "sleep 60 >/dev/null & echo $!"
    sleeper = int(subprocess.run(["sh", "-c", sleep], stdout=subprocess.PIPE, check=True).stdout)
    cores = len(os.sched_getaffinity(0))
    try:
        pretend_running(mounted, "vtj-1", sleeper)
        if waits:
            mounted.queue.add(allocation(mounted.workspace, 2, ranks=cores))
        runner = Runner(mounted.workspace)
        runner.tick()
        thread = threading.Thread(target=runner.run, daemon=True)
        with away(mount):
            if waits:
                end(sleeper)
            thread.start()
            thread.join(4 * TICK_S)
            assert thread.is_alive() and not mount.exists()
    finally:
        end(sleeper)
    thread.join(60)
    assert not thread.is_alive()
    assert read_json(mounted.queue.entry("ended", "vtj-1")) == {"code": None, "word": "gone"}


def test_a_runner_whose_workspace_stays_away_ends_after_its_agents(
    mounted: LocalBackend, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_process, "LINGER_S", 2 * TICK_S)
    mounted.queue.add(allocation(mounted.workspace, 1))
    runner = Runner(mounted.workspace)
    runner.tick()
    with away(mount):
        runner.run()
        assert list(runner.codes.values()) and not mount.exists()


def test_there_is_one_runner_however_often_it_is_woken(backend: LocalBackend) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    pretend_running(backend, "vtj-1", sleeper.pid)
    for _ in range(3):
        backend.wake()
    wait_for(lambda: not lock_is_free(backend), 20)
    time.sleep(1.0)
    assert len(runners(backend.workspace.root)) == 1
    sleeper.kill()
    sleeper.wait()
    wait_for(lambda: not runners(backend.workspace.root), 20)
    assert read_json(backend.queue.entry("ended", "vtj-1")) == {"code": None, "word": "gone"}


def runners(root: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if (
            str(root) in words
            and "run" in words
            and "vtjobs.orchestrator.backends.local.queue_process" in words
        ):
            found.append(int(entry.name))
    return found


def test_what_another_hosts_queue_holds_is_not_absent_while_that_queue_is_served(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, busy = (allocation(backend.workspace, number) for number in (1, 2))
    for made in (waiting, busy):
        backend.submit(made)
    pretend_running(backend, busy.token, os.getpid())
    backend.queue.show_life()
    lock = backend.queue.root / LOCK
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    elsewhere = LocalBackend(backend.workspace)
    tokens = [waiting.token, busy.token]
    states = [view.state for view in look(elsewhere, *tokens)]
    assert states == [JobState.QUEUED, JobState.RUNNING]
    silent = time.time() - LEASE_S - 1
    os.utime(lock, (silent, silent))
    assert {view.state for view in look(elsewhere, *tokens)} == {JobState.ENDED}


def test_an_agent_that_ends_after_the_reaping_keeps_its_exit_code(backend: LocalBackend) -> None:
    runner = Runner(backend.workspace)
    with subprocess.Popen(["sleep", "60"]) as child:
        pretend_running(backend, "vtj-1", child.pid)
        assert runner.tick()
        child.kill()
        wait_for(lambda: process_identity(child.pid) is None, 30)
        (entry,) = backend.queue.running().values()
        runner._note_end("vtj-1", entry)
    assert read(backend.queue.entry("ended", "vtj-1"), End) == End(code=-9, word="SIGKILL")


def need(gpus: int, cores: int) -> Need:
    return Need(created_at=0.0, gpus=gpus, cores=cores)


def running(gpus: list[str], cores: int) -> Running:
    return Running(pid=1, started="1", boot="b", gpus=gpus, cores=cores)


def test_no_more_cores_are_given_out_than_there_are(backend: LocalBackend) -> None:
    runner = Runner(backend.workspace)
    taken = {"vtj-1": running([], cpu_count() - 1)}
    assert runner._fits(need(0, 1), taken) == []
    assert runner._fits(need(0, 2), taken) is None


def test_a_gpu_is_given_to_one_allocation_at_a_time(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    runner = Runner(backend.workspace)
    taken = {"vtj-1": running(["5"], 0)}
    assert runner._fits(need(2, 1), taken) == ["4", "6"]
    assert runner._fits(need(3, 1), taken) is None


def test_a_successor_is_queued_by_the_command_in_the_allocation_file(backend: LocalBackend) -> None:
    made = allocation(backend.workspace, 1)
    command = [part.replace("{token}", made.token) for part in backend.argv(made)]
    assert command[0] == sys.executable
    subprocess.run(command, check=True, cwd="/")
    ended = backend.queue.entry("ended", made.token)
    wait_for(ended.exists, 30)
    assert read_json(ended)["code"] == 0

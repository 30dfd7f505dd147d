"""The agent as a task of a SLURM job.

Whose clock counts, why a TERM came, and what is handed on.
"""

import signal
import time
from pathlib import Path

import pytest

from vtjobs.db.ingest import ingest_live
from vtjobs.jobs.atomic_files import read_json, to_json, write_over
from vtjobs.jobs.run.states import ExitCode
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation
from vtjobs.orchestrator.backends.slurm.on_node import SlurmNode

from ...support.grids import ENDLESS, tiny_grid
from ...support.lab import Lab, templates, wait_for
from ...support.nodes import end_of, journal, start_agent
from ...support.scheduler import Commands, job_line

ELEMENT = {"SLURM_JOB_ID": "43", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0"}


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    made = Commands(tmp_path / "bin")
    made.answers("sbatch", "exit 0")
    return made


def is_training(lab: Lab, run_id: str) -> bool:
    return any(event["kind"] == "epoch" for event in journal(lab, run_id, 1, 0))


def rewrite(lab: Lab, allocation: Allocation, **changes: object) -> Allocation:
    made = changed(allocation, **changes)
    write_over(lab.context.workspace.allocation(made.token), to_json(made.to_dict()))
    return made


def successor_of(lab: Lab, allocation: Allocation) -> Allocation | None:
    """Return the allocation that an agent wrote for what it handed on."""
    paths = [
        path
        for path in lab.context.workspace.allocations.glob("*.json")
        if path.stem != allocation.token
    ]
    return Allocation.from_dict(read_json(paths[0])) if paths else None


def handed_to(commands: Commands) -> tuple[str, ...]:
    return (str(commands.folder / "sbatch"), "--after={job}", "{token}")


def stopped_by_term(
    lab: Lab, commands: Commands, answer: str, *, code: int = ExitCode.STOPPED
) -> tuple[str, Allocation]:
    """Train one run of two as an element of an array, send a TERM, and let the scheduler say this
    about it.
    """
    commands.answers("scontrol", answer)
    runs = lab.submit(tiny_grid(seeds="2", epochs=ENDLESS))
    made = lab.allocate(
        runs, backend="slurm", checkpoint_every_s=3600, walltime_s=7200, argv=handed_to(commands)
    )
    allocation = rewrite(lab, made, exclude=("bad7",), after=("39",))
    agent = start_agent(
        lab, allocation, **ELEMENT, PATH=commands.path, SLURM_CONF="/here", SBATCH_PARTITION="low"
    )
    wait_for(lambda: is_training(lab, runs[0]))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(timeout=120) == code
    ingest_live(lab.context.ledger, lab.context.workspace)
    assert lab.run(runs[1]).highest_claim() == 0, "what had not begun costs nothing"
    end = end_of(lab, runs[0], 1, 0)
    assert end is not None and lab.record(runs[0], 1).announced == (end["step"],)
    return runs[0], allocation


@pytest.mark.parametrize(
    ("line", "state", "failure"),
    [
        (job_line("COMPLETING", reason="TimeLimit"), "timeout", "walltime"),
        (job_line("RUNNING", preempted_at="2026-01-01T00:00:09"), "preempted", "stopped"),
    ],
)
def test_a_walltime_or_a_preemption_is_handed_on_behind_the_own_job(
    lab: Lab, commands: Commands, line: str, state: str, failure: str
) -> None:
    run_id, allocation = stopped_by_term(lab, commands, f"echo '{line}'", code=ExitCode.COMPLETED)
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["class"]) == (state, failure)
    assert "explained" not in end
    successor = successor_of(lab, allocation)
    assert successor is not None and [task.attempt for task in successor.all_tasks] == [2, 2]
    assert (successor.exclude, successor.after) == (("bad7",), ())
    assert commands.calls("sbatch") == [f"--after=40_0 {successor.token}"]
    environment = commands.environment_of("sbatch")
    assert [name for name in environment if name.startswith(("SLURM_", "SBATCH_"))] == [
        "SLURM_CONF"
    ]


def test_a_cancel_in_slurm_sticks(lab: Lab, commands: Commands) -> None:
    run_id, allocation = stopped_by_term(lab, commands, f"echo '{job_line('COMPLETING')}'")
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["class"]) == ("cancelled", "cancelled")
    assert end["signature"] == "cancelled in SLURM"
    assert successor_of(lab, allocation) is None and not commands.calls("sbatch")
    assert lab.state(run_id) == "cancelled"


def test_a_term_that_nobody_explains_is_left_to_the_schedulers_word(
    lab: Lab, commands: Commands
) -> None:
    run_id, allocation = stopped_by_term(lab, commands, "exec sleep 60")
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["explained"]) == ("preempted", False)
    assert successor_of(lab, allocation) is None and not commands.calls("sbatch")
    (attempt,) = lab.attempts(run_id)
    assert (attempt.state, attempt.signature, attempt.ended_at) == (
        "running",
        "stopped and saved",
        None,
    )
    assert attempt.heartbeat_at == end["at"]


def test_the_walltimes_signal_needs_no_question(lab: Lab, commands: Commands) -> None:
    commands.answers("scontrol", "exit 1")
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    allocation = lab.allocate(
        [run_id], backend="slurm", checkpoint_every_s=3600, argv=handed_to(commands)
    )
    agent = start_agent(lab, allocation, SLURM_JOB_ID="43", PATH=commands.path)
    wait_for(lambda: is_training(lab, run_id))
    agent.send_signal(signal.SIGUSR2)
    assert agent.wait(timeout=120) == 0
    end, successor = end_of(lab, run_id, 1, 0), successor_of(lab, allocation)
    assert end is not None and (end["state"], end["class"]) == ("timeout", "walltime")
    assert successor is not None and commands.calls("sbatch") == [f"--after=43 {successor.token}"]
    # SLURM was asked nothing.
    assert not any(call.startswith("-o show") for call in commands.calls("scontrol"))


def test_a_job_that_is_handed_on_has_not_failed_and_its_comment_says_where_it_goes_on(
    lab: Lab, commands: Commands
) -> None:
    commands.answers("sbatch", "echo Submitted batch job 77")
    commands.answers("scontrol", "exit 0")
    commands.prints("squeue", "50|afterany:40_*(unfulfilled)\n51|(null)\n77|afterany:40_0")
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    argv = (*handed_to(commands), "--comment=mine")
    made = lab.allocate([run_id], backend="slurm", checkpoint_every_s=3600, argv=argv)
    agent = start_agent(lab, made, **ELEMENT, PATH=commands.path)
    wait_for(lambda: is_training(lab, run_id))
    agent.send_signal(signal.SIGUSR2)
    assert agent.wait(timeout=120) == ExitCode.COMPLETED
    end = end_of(lab, run_id, 1, 0)
    assert end is not None and (end["state"], end["class"]) == ("timeout", "walltime")
    chained, *_, comment = commands.calls("scontrol")
    # The job of a later stage waits for the whole chain.
    assert chained == "update JobId=50 Dependency=afterany:40,afterany:77"
    assert comment == "update JobId=40_0 Comment=mine; vtjobs: handed on to job 77"


def test_slurm_keeps_the_clock_where_it_is_the_scheduler(lab: Lab) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=10))
    allocation = lab.allocate([run_id], backend="slurm", walltime_s=1)
    assert start_agent(lab, allocation, SLURM_JOB_ID="43").wait(timeout=120) == 0
    assert lab.record(run_id, 1).end.state == "completed"


def test_an_agent_that_is_stopped_before_its_template_is_ready_ends_at_once_and_claims_nothing(
    lab: Lab, commands: Commands
) -> None:
    runs = lab.submit(tiny_grid(seeds="2", epochs=ENDLESS))
    allocation = lab.allocate(runs, backend="slurm", argv=handed_to(commands))
    agent = start_agent(lab, allocation, SLURM_JOB_ID="43", PATH=commands.path)
    (template,) = wait_for(lambda: templates(agent.pid))
    began = time.monotonic()
    agent.send_signal(signal.SIGUSR2)
    assert agent.wait(timeout=120) == 0
    assert time.monotonic() - began < 3
    assert not Path(f"/proc/{template}").exists()
    for run_id in runs:
        assert lab.run(run_id).highest_claim() == 0
        assert not lab.run(run_id).attempts()
    successor = successor_of(lab, allocation)
    assert successor is not None and [task.run_id for task in successor.all_tasks] == runs


def test_the_third_job_in_a_row_whose_walltime_ends_before_its_run_starts_ends_the_run(
    lab: Lab, commands: Commands
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=ENDLESS))
    made = lab.allocate([run_id], backend="slurm", argv=handed_to(commands))
    allocation = rewrite(lab, made, unstarted=2)
    agent = start_agent(lab, allocation, SLURM_JOB_ID="43", PATH=commands.path)
    wait_for(lambda: templates(agent.pid))
    agent.send_signal(signal.SIGUSR2)
    assert agent.wait(timeout=120) == ExitCode.SETUP_ERROR
    assert successor_of(lab, allocation) is None
    lab.tick(start=False)
    assert lab.state(run_id) == "failed"
    (attempt,) = lab.attempts(run_id)
    assert attempt.signature == (
        "the walltime of 3 jobs in a row ended before the run could start; ask for more"
        " resources.walltime"
    )


def test_an_element_of_an_array_serves_its_own_runs(lab: Lab) -> None:
    runs = lab.submit(tiny_grid(seeds="2", epochs=1))
    made = lab.allocate(runs, backend="slurm")
    allocation = rewrite(lab, made, tasks=tuple((task,) for task in made.all_tasks))
    element = {**ELEMENT, "SLURM_ARRAY_TASK_ID": "1"}
    assert start_agent(lab, allocation, **element).wait(timeout=120) == 0
    assert [lab.run(run_id).highest_claim() for run_id in runs] == [0, 1]


def test_a_node_whose_gpus_are_not_real_trains_on_the_cpu_and_keeps_their_ids(lab: Lab) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=1, train="virtual_ranks: 2"))
    allocation = lab.allocate([run_id], backend="slurm", gpus=2, ranks=2)
    agent = start_agent(lab, allocation, CUDA_VISIBLE_DEVICES="4,5", VTJOBS_DEVICE="cpu")
    assert agent.wait(timeout=120) == 0
    start = lab.record(run_id, 1).start
    assert start is not None and start.gpus == ["4", "5"]


def test_a_successor_avoids_nodes_starts_at_once_or_later(lab: Lab, commands: Commands) -> None:
    argv = ("sbatch", "--exclude=bad7", "--dependency=afterany:{job}", "{token}")
    node = SlurmNode()
    now = node.successor(argv, "vtj-2", exclude=["bad8"], waits=False)
    assert now == ["sbatch", "--exclude=bad7,bad8", "vtj-2"]
    later = node.successor(argv, "vtj-2", delay_s=120)
    assert "--begin=now+120" in later and "--exclude=bad7" in later


def submitted_to_slurm(lab: Lab) -> list[str]:
    """Submit two runs, and have their grid go to SLURM, which is not here to be asked."""
    runs = lab.submit(tiny_grid(seeds="2"))
    for path in lab.context.workspace.grids.glob("*/grid.json"):
        settings = read_json(path)
        if settings["name"] == "tiny":
            write_over(path, to_json(settings | {"backend": "slurm"}))
    return runs


def test_an_agent_without_walltime_left_submits_what_its_grid_still_waits_for(
    lab: Lab, commands: Commands
) -> None:
    runs = submitted_to_slurm(lab)
    allocation = lab.allocate(
        runs[:1], backend="slurm", walltime_s=600, lead_s=500, argv=handed_to(commands)
    )
    agent = start_agent(lab, allocation, **ELEMENT, PATH=commands.path)
    assert agent.wait(timeout=120) == 0
    successor = successor_of(lab, allocation)
    assert successor is not None and successor.inside is None
    assert [task.run_id for task in successor.all_tasks] == runs[1:]
    assert commands.calls("sbatch") == [f"--after=40_0 {successor.token}"]


def test_what_could_not_be_submitted_is_tried_by_the_next_agent_that_ends(
    lab: Lab, commands: Commands
) -> None:
    commands.answers("sbatch", "exit 1")
    (other,) = lab.submit(tiny_grid(name="other", seeds="[7]"))
    last = lab.allocate([other], backend="slurm", walltime_s=600, lead_s=500)
    runs = submitted_to_slurm(lab)
    first = lab.allocate(
        runs[:1], backend="slurm", walltime_s=600, lead_s=500, argv=handed_to(commands)
    )
    assert start_agent(lab, first, **ELEMENT, PATH=commands.path).wait(timeout=120) == 0
    (unsent,) = lab.context.workspace.allocations.glob("*.unsent")
    commands.answers("sbatch", "exit 0")
    assert start_agent(lab, last, **ELEMENT, PATH=commands.path).wait(timeout=120) == 0
    assert not unsent.exists()
    assert commands.calls("sbatch")[-1] == f"--after=40_0 {unsent.stem}"


# At a limit -----------------------------------------------------------------------------------------


def handed_on_at_a_limit(lab: Lab, commands: Commands) -> tuple[str, Allocation]:
    """Have a walltime end a run while the scheduler takes no further job."""
    commands.answers("sbatch", "exit 1")
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=40, slow=True))
    allocation = lab.allocate(
        [run_id], backend="slurm", checkpoint_every_s=3600, argv=handed_to(commands)
    )
    agent = start_agent(lab, allocation, **ELEMENT, PATH=commands.path)
    wait_for(lambda: is_training(lab, run_id))
    agent.send_signal(signal.SIGUSR2)
    assert agent.wait(timeout=120) == 75
    return run_id, allocation


def test_a_job_at_a_limit_is_put_back_and_goes_on_with_its_own_run(
    lab: Lab, commands: Commands
) -> None:
    commands.answers("scontrol", "exit 0")
    run_id, allocation = handed_on_at_a_limit(lab, commands)
    assert commands.calls("scontrol") == [
        "update JobId=40_0 Requeue=1",
        "requeue 40_0",
        "update JobId=40_0 StartTime=now+20",
    ]
    assert not list(lab.context.workspace.allocations.glob("*.unsent"))
    again = start_agent(lab, allocation, **ELEMENT, SLURM_RESTART_COUNT="1", PATH=commands.path)
    assert again.wait(timeout=120) == 0
    assert commands.calls("scontrol")[3:] == ["update JobId=40_0 Requeue=0"]
    first, second = lab.record(run_id, 1), lab.record(run_id, 2)
    assert first.end is not None and second.start is not None and second.end is not None
    assert second.start.resumed_step == first.end.step
    assert second.end.state == "completed"


def test_where_jobs_cannot_be_put_back_the_next_agent_submits_what_a_limit_refused(
    lab: Lab, commands: Commands
) -> None:
    commands.answers("scontrol", "exit 1")
    run_id, _ = handed_on_at_a_limit(lab, commands)
    assert commands.calls("scontrol") == ["update JobId=40_0 Requeue=1"]
    assert list(lab.context.workspace.allocations.glob("*.unsent"))
    assert lab.run(run_id).highest_claim() == 1


def test_a_job_that_was_put_back_by_somebody_else_runs_nothing_twice(
    lab: Lab, commands: Commands
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1"))
    allocation = lab.allocate([run_id], backend="slurm")
    codes = [
        start_agent(lab, allocation, **ELEMENT, SLURM_RESTART_COUNT=count).wait(timeout=120)
        for count in "01"
    ]
    assert codes == [ExitCode.COMPLETED, ExitCode.SUPERSEDED]
    assert lab.run(run_id).highest_claim() == 1

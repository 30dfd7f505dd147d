"""When silence of ranks, or of another node, means that something is wrong."""

from pathlib import Path

from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.paths import RunFolder
from vtjobs.workers.agent.hang_watch import COMPILE_FACTOR, Pulse
from vtjobs.workers.agent.other_nodes import SILENT_S, OtherNodes


def watched(until: float, *, beats: int = 20) -> Pulse:
    """Return the pulse of a rank that spoke once a second and then fell silent, looked at every
    second.
    """
    pulse = Pulse(60.0)
    pulse.begin(0, 0.0)
    for second in range(1, int(until) + 1):
        if second <= beats:
            pulse.beat(0, float(second))
        pulse.silence([0], float(second))
    return pulse


def test_a_rank_that_is_silent_for_longer_than_allowed_is_told() -> None:
    pulse = watched(79.0)
    assert pulse.silence([0], 80.0) == 0.0
    assert pulse.silence([0], 81.0) == 61.0


def test_a_rank_that_compiles_is_given_six_times_as_long_until_it_speaks_again() -> None:
    pulse = watched(20.0)
    pulse.beat(0, 21.0, COMPILE_FACTOR)
    silences = [pulse.silence([0], float(second)) for second in range(22, 383)]
    assert silences[-2:] == [0.0, 361.0] and not any(silences[:-1])
    pulse.beat(0, 383.0)
    silences = [pulse.silence([0], float(second)) for second in range(384, 445)]
    assert silences[-2:] == [0.0, 61.0] and not any(silences[:-1])


def test_the_time_for_which_a_whole_job_was_suspended_is_no_silence_of_its_ranks() -> None:
    pulse = watched(25.0)
    assert pulse.silence([0], 5_000.0) == 0.0
    assert pulse.silence([0], 5_005.0) == 0.0


def test_a_rank_that_hangs_after_its_job_was_suspended_is_told_all_the_same() -> None:
    pulse = watched(25.0)
    assert pulse.silence([0], 5_000.0) == 0.0
    for second in range(5_001, 5_056):
        assert pulse.silence([0], float(second)) == 0.0
    assert pulse.silence([0], 5_056.0) > 60.0


def other_node(folder: Path) -> OtherNodes:
    """Return a node that has started and goes on."""
    run = RunFolder(folder)
    run.attempt(1).mkdir(parents=True)
    JournalWriter(run.journal(1, 1)).write("start", at=0.0, attempt=1, host="gpu1", gpus=[])
    return OtherNodes(run, 1, [1])


def test_another_node_without_a_heartbeat_is_silent(tmp_path: Path) -> None:
    others = other_node(tmp_path)
    told = [others.look(float(second)) for second in range(1, int(SILENT_S) + 4)]
    assert told[0] == "" and told[-1] == "node 1 stopped responding"


def test_another_node_is_given_its_time_again_after_the_whole_job_was_suspended(
    tmp_path: Path,
) -> None:
    others = other_node(tmp_path)
    assert [others.look(1.0), others.look(2.0)] == ["", ""]
    assert others.look(10_000.0) == ""

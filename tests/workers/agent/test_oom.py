"""The kernel's own word on processes that it killed for want of memory."""

import signal
from pathlib import Path

import pytest

from vtjobs.jobs.run.states import AttemptState, FailureClass
from vtjobs.workers.agent import outcome
from vtjobs.workers.agent.oom import oom_kills
from vtjobs.workers.agent.outcome import judge_ranks
from vtjobs.workers.agent.rank_process import RankProcess


def test_the_counter_of_the_own_group_is_read_in_both_layouts(tmp_path: Path) -> None:
    (tmp_path / "slurm/job_1").mkdir(parents=True)
    (tmp_path / "slurm/job_1/memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    assert oom_kills("0::/slurm/job_1\n", tmp_path) == 3
    (tmp_path / "memory/slurm/job_1").mkdir(parents=True)
    (tmp_path / "memory/slurm/job_1/memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    )
    assert oom_kills("5:memory:/slurm/job_1\n3:cpu:/slurm\n", tmp_path) == 2


def test_a_group_without_a_counter_has_killed_nobody(tmp_path: Path) -> None:
    assert oom_kills("0::/nowhere\n", tmp_path) == 0
    assert oom_kills() >= 0


@pytest.mark.parametrize(
    ("kills", "failure"), [(1, FailureClass.OUT_OF_MEMORY), (0, FailureClass.CRASH)]
)
def test_a_rank_that_the_kernel_killed_for_want_of_memory_ran_out_of_memory(
    kills: int, failure: FailureClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = RankProcess(0, "1", 0, 0, 0, status=-signal.SIGKILL, oom_before=0)
    monkeypatch.setattr(outcome, "oom_kills", lambda: kills)
    found = judge_ranks([rank], [], stopping=None, killed=None)
    assert found.failure is failure
    assert (found.state is AttemptState.OUT_OF_MEMORY) == bool(kills)

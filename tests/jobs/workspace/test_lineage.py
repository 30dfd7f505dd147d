"""Which attempts count, read from the run's folder alone."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.lineage import Candidate, candidates, completed_by, read_attempt
from vtjobs.jobs.workspace.paths import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def attempt(
    folder: RunFolder,
    number: int,
    *,
    resumed: tuple[int, int] | None = None,
    steps: Iterable[int] = (),
    end: str | None = None,
    started: bool = True,
) -> None:
    """Write down an attempt that went on from `resumed` (attempt, step) and announced checkpoints."""
    folder.attempt(number).mkdir(parents=True)
    writer = JournalWriter(folder.journal(number, 0))
    if started:
        before = dict(
            zip(("resumed_attempt", "resumed_step"), resumed or (None, None), strict=True)
        )
        writer.write("start", at=0, attempt=number, **before)
    for step in steps:
        writer.write("checkpoint", at=0, epoch=0, step=step, bytes=1)
        folder.checkpoint(number, step).mkdir(parents=True)
    if end:
        writer.write("end", at=0, state=end)
    writer.close()


def test_the_lineage_is_followed_newest_first(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10, 20])
    attempt(folder, 2, resumed=(1, 20), steps=[30, 40])
    assert candidates(folder, 3) == [
        Candidate(attempt=a, step=s) for a, s in ((2, 40), (2, 30), (1, 20), (1, 10))
    ]


def test_what_an_attempt_wrote_behind_the_cut_is_not_adopted(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10, 20, 30])
    attempt(folder, 2, resumed=(1, 10), steps=[15])
    assert candidates(folder, 3) == [Candidate(attempt=a, step=s) for a, s in ((2, 15), (1, 10))]


def test_an_attempt_that_was_passed_over_is_passed_over(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, resumed=(1, 10), steps=[20])
    attempt(folder, 3, resumed=(1, 10), steps=[12])
    assert candidates(folder, 4) == [Candidate(attempt=a, step=s) for a, s in ((3, 12), (1, 10))]


def test_an_attempt_that_began_anew_ends_the_lineage(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, steps=[5])
    assert candidates(folder, 3) == [Candidate(attempt=2, step=5)]


def test_an_attempt_that_never_started_changes_nothing(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, started=False, end="superseded")
    assert candidates(folder, 3) == [Candidate(attempt=1, step=10)]


def test_an_attempt_sees_only_those_below_it(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, resumed=(1, 10), steps=[20])
    assert candidates(folder, 2) == [Candidate(attempt=1, step=10)]
    assert candidates(folder, 1) == []


def test_a_checkpoint_that_nobody_lived_to_announce_comes_after_those_that_were(
    folder: RunFolder,
) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, resumed=(1, 10), steps=[30])
    folder.checkpoint(2, 40).mkdir()
    found = candidates(folder, 3)
    assert found == [Candidate(attempt=a, step=s) for a, s in ((2, 30), (1, 10), (2, 40))]


def test_a_checkpoint_that_nobody_lived_to_announce_is_better_than_none(folder: RunFolder) -> None:
    attempt(folder, 1)
    folder.checkpoint(1, 20).mkdir(parents=True)
    assert candidates(folder, 2) == [Candidate(attempt=1, step=20)]


def test_what_is_no_checkpoint_beside_them_is_passed_over(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    for name in (".step-000000020.ab12", "step-000000030.tmp", "step-", "lost+found"):
        (folder.checkpoints(1) / name).mkdir()
    assert candidates(folder, 2) == [Candidate(attempt=1, step=10)]


def test_the_completion_of_the_last_that_started_counts(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10], end="completed")
    attempt(folder, 2, started=False, end="superseded")
    assert completed_by(folder, 3) == 1


def test_a_completion_below_a_later_start_does_not_count(folder: RunFolder) -> None:
    attempt(folder, 1, end="completed")
    attempt(folder, 2, resumed=(1, 10))
    assert completed_by(folder, 3) is None
    assert completed_by(folder, 2) == 1


def test_a_torn_end_is_no_end(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10], end="completed")
    journal = folder.journal(1, 0)
    journal.write_bytes(journal.read_bytes()[:-3])
    assert read_attempt(folder, 1).end is None
    assert completed_by(folder, 2) is None


def test_a_damaged_journal_counts_up_to_the_damage(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10, 20], end="completed")
    journal = folder.journal(1, 0)
    lines = journal.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"20", b"99")
    journal.write_bytes(b"\n".join(lines))
    record = read_attempt(folder, 1)
    assert record.start is not None
    assert record.announced == (10,)
    assert record.end is None


def test_a_run_without_a_folder_has_no_lineage(folder: RunFolder) -> None:
    assert (candidates(folder, 5), completed_by(folder, 5)) == ([], None)


def test_checkpoints_are_not_forgotten_because_the_journal_beside_them_is_damaged(
    folder: RunFolder,
) -> None:
    attempt(folder, 1, steps=[10])
    attempt(folder, 2, resumed=(1, 10), steps=[20])
    journal = folder.journal(2, 0)
    journal.write_bytes(b"\0" * 64 + b"\n" + journal.read_bytes())
    assert candidates(folder, 3) == [Candidate(attempt=1, step=10), Candidate(attempt=2, step=20)]


def test_a_journal_that_cannot_be_read_is_not_one_that_says_nothing(folder: RunFolder) -> None:
    attempt(folder, 1, steps=[10])
    folder.attempt(2).mkdir()
    folder.journal(2, 0).mkdir()
    for question in (candidates, completed_by):
        with pytest.raises(OSError):
            question(folder, 3)

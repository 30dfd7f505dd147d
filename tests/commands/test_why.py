"""What `vtjobs why` says of several runs."""

from vtjobs.commands.printing.why import lines
from vtjobs.orchestrator.views.why import Explanation


def explained(run_id: str, state: str, sentence: str, action: str = "") -> Explanation:
    return Explanation(
        schema_version=1,
        run_id=run_id,
        state=state,
        shown_state=state,
        verdict="ended",
        sentence=sentence,
        action=action,
        message="",
        place="",
        reason="",
        job=None,
    )


def failed(run_id: str, sentence: str = "KeyError: 'x' (a.py:3)") -> Explanation:
    return explained(run_id, "failed", sentence, f"Fix a.py:3, then run: vtjobs retry {run_id[:8]}")


def test_runs_with_the_same_explanation_are_told_together_with_one_command_for_all() -> None:
    found = [
        failed("aaaaaaaa00"),
        explained("bbbbbbbb00", "completed", "attempt 1 finished"),
        failed("cccccccc00"),
        failed("dddddddd00", "ValueError: 3 (a.py:3)"),
    ]
    assert list(lines(found)) == [
        "2 runs are failed: KeyError: 'x' (a.py:3)",
        "    aaaaaaaa cccccccc",
        "next: Fix a.py:3, then run: vtjobs retry aaaaaaaa cccccccc",
        "bbbbbbbb is completed: attempt 1 finished",
        "dddddddd is failed: ValueError: 3 (a.py:3)",
        "next: Fix a.py:3, then run: vtjobs retry dddddddd",
    ]


def test_of_very_many_the_first_ones_are_named_and_the_command_is_that_of_one() -> None:
    found = [failed(f"{number:08x}00") for number in range(12)]
    first, ids, remedy = lines(found)
    assert first.startswith("12 runs are failed") and ids.endswith("00000009 …")
    assert remedy == "next, for each of them: Fix a.py:3, then run: vtjobs retry 00000000"

"""From the text of squeue and sacct to rows."""

from datetime import datetime
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.orchestrator.backends.slurm import query
from vtjobs.orchestrator.backends.slurm.query import Row, expand, sacct, squeue

from ....support.scheduler import Commands

# As SLURM 22.05.8 printed it, times as seconds since 1970.
SQUEUE = """
35|0|COMPLETED|None|gpu0|1795269017|N/A|tok-1
34|1|FAILED|NonZeroExitCode|gpu0|1795269017|N/A|tok-1
34|4-10%2|PENDING|JobArrayTaskLimit||N/A|1795270000|tok-1
34|3|RUNNING|None|gpu0|1795269317|N/A|tok-1
43|N/A|COMPLETED|None|gpu0|1795269030|N/A|tok-3
42|0-12:3|PENDING|JobHeldUser||N/A|N/A|tok-2
50|N/A|PENDING|ReqNodeNotAvail, UnavailableNodes:gpu3||N/A|N/A|tok-4
61|N/A|PENDING|Priority||N/A|N/A|my own | job
"""
SACCT = """
34_0|COMPLETED|0:0|1795269017|gpu0|None|tok-1
34_1|FAILED|3:0|1795269017|gpu0|None|tok-1
34_4|CANCELLED by 0|0:0|1795269029|gpu0|JobArrayTaskLimit|tok-1
34_6|RUNNING|0:0|Unknown|gpu0|JobArrayTaskLimit|tok-1
34_[6,10%2]|PENDING|0:0|Unknown|None assigned|JobArrayTaskLimit|tok-1
43|COMPLETED|0:0|1795269030|gpu0|None|tok-3
43.batch|COMPLETED|0:0|1795269030|gpu0|None|batch
91|PENDING|0:0|Unknown|None assigned|None|allocation
37_7|PREEMPTED|0:0|1795269040|gpu14|None|tok-2
37_7|PENDING|0:0|Unknown|None assigned|BeginTime|tok-2
"""


def by_place(rows: list[Row]) -> dict[tuple[str, int], Row]:
    """Return the last row of each place, as readers take it."""
    return {(row.token, row.index): row for row in rows}


def test_squeue_gives_a_row_for_every_element(commands: Commands) -> None:
    commands.prints("squeue", SQUEUE)
    rows = by_place(squeue(deadline_s=10))
    assert [index for token, index in rows if token == "tok-1"] == [0, 1, 4, 5, 6, 7, 8, 9, 10, 3]
    assert [index for token, index in rows if token == "tok-2"] == [0, 3, 6, 9, 12]
    running = rows["tok-1", 3]
    assert (running.job_id, running.state, running.nodes, running.ended_at) == (
        "34",
        "RUNNING",
        "gpu0",
        1795269317.0,
    )
    assert rows["tok-1", 7].ended_at is None
    assert (rows["tok-1", 7].starts_at, rows["tok-1", 0].starts_at) == (1795270000.0, None)
    assert rows["tok-3", 0].state == "COMPLETED"


def test_a_reason_with_a_comma_and_a_name_with_a_bar_are_read_whole(commands: Commands) -> None:
    commands.prints("squeue", SQUEUE)
    rows = by_place(squeue(deadline_s=10))
    assert rows["tok-4", 0].reason == "ReqNodeNotAvail, UnavailableNodes:gpu3"
    assert ("my own | job", 0) in rows


def test_an_empty_queue_has_no_rows(commands: Commands) -> None:
    commands.prints("squeue", "")
    assert squeue(deadline_s=10) == []


def test_sacct_gives_the_allocations_that_were_asked_for(commands: Commands) -> None:
    commands.prints("sacct", SACCT)
    rows = by_place(sacct({"tok-1", "tok-3"}, since=1000.0, deadline_s=10))
    assert set(rows) == {("tok-1", index) for index in (0, 1, 4, 6, 10)} | {("tok-3", 0)}
    failed = rows["tok-1", 1]
    assert (failed.job_id, failed.state, failed.exit_code, failed.reason) == (
        "34",
        "FAILED",
        "3:0",
        "",
    )
    assert rows["tok-1", 4].state == "CANCELLED by 0"


@pytest.mark.parametrize("single_first", [True, False])
def test_an_element_that_has_started_is_not_taken_for_waiting_because_a_range_still_lists_it(
    commands: Commands, single_first: bool
) -> None:
    lines = [
        "34_6|RUNNING|0:0|Unknown|gpu0|None|tok-1",
        "34_[6,10%2]|CANCELLED by 0|0:0|1795269029||None|tok-1",
    ]
    commands.prints("sacct", "\n".join(lines if single_first else lines[::-1]))
    rows = by_place(sacct({"tok-1"}, since=1000.0, deadline_s=10))
    assert rows["tok-1", 6].state == "RUNNING"
    assert rows["tok-1", 10].state == "CANCELLED by 0"


def test_of_several_rows_of_an_element_the_newest_comes_last(commands: Commands) -> None:
    commands.prints("sacct", SACCT)
    assert [row.state for row in sacct({"tok-2"}, since=1000.0, deadline_s=10)] == [
        "PREEMPTED",
        "PENDING",
    ]


def test_sacct_is_asked_by_name_from_the_time_of_submission(commands: Commands) -> None:
    commands.prints("sacct", "")
    since = datetime(2026, 11, 21, 13, 50).timestamp()
    sacct({"tok-2", "tok-1"}, since=since, deadline_s=10)
    (call,) = commands.calls("sacct")
    assert "--starttime=2026-11-21T13:50:00" in call and call.endswith("--name=tok-1,tok-2")
    assert "--duplicates" in call and "--allocations" in call


def test_too_many_names_for_a_command_line_are_looked_for_in_everything_of_the_user(
    commands: Commands,
) -> None:
    many = {f"tok-{number}" for number in range(query.MOST_NAMES + 1)}
    commands.prints("sacct", SACCT + "99|COMPLETED|0:0|1|gpu0|None|somebody")
    assert {row.token for row in sacct(many, since=1000.0, deadline_s=10)} == {
        "tok-1",
        "tok-2",
        "tok-3",
    }
    assert "--name" not in commands.calls("sacct")[0]


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("4-10:2,12%3", [4, 6, 8, 10, 12]),
        ("6,10%2", [6, 10]),
        ("0-600:300", [0, 300, 600]),
        ("", []),
        ("N/A", []),
    ],
)
def test_an_array_expression_stands_for_its_indices(text: str, indices: list[int]) -> None:
    assert list(expand(text)) == indices


PARTS = st.tuples(
    st.integers(0, 5000),
    st.integers(0, 60),
    st.integers(1, 9),
    st.sampled_from(["one", "span", "step"]),
)


@given(st.lists(PARTS, min_size=1, max_size=6), st.integers(0, 50))
def test_every_array_expression_is_read_as_it_was_written(
    parts: list[tuple[int, int, int, str]], at_a_time: int
) -> None:
    written, meant = [], []
    for low, length, step, form in parts:
        if form == "one":
            written.append(f"{low}")
            meant.append([low])
        elif form == "span":
            written.append(f"{low}-{low + length}")
            meant.append([low + more for more in range(length + 1)])
        else:
            written.append(f"{low}-{low + length}:{step}")
            meant.append(
                [number for number in range(low, low + length + 1) if (number - low) % step == 0]
            )
    limit = f"%{at_a_time}" if at_a_time else ""
    assert list(expand(",".join(written) + limit)) == list(chain.from_iterable(meant))

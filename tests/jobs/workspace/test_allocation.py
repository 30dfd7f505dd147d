"""The allocation file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.documents import Unfit
from vtjobs.jobs.names import TOKEN
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task

TASKS = st.builds(
    Task,
    run_id=st.text("0123456789abcdef", min_size=16, max_size=16),
    attempt=st.integers(1, 9999),
    grid_id=st.text("abc-", min_size=1, max_size=9),
    clean=st.booleans(),
    micro_split=st.integers(1, 8),
    parent=st.none() | st.text("0123456789abcdef", min_size=16, max_size=16),
)
SHAPES = st.builds(
    Shape,
    backend=st.just("local"),
    nodes=st.integers(1, 4),
    ranks=st.integers(1, 8),
    gpus=st.integers(0, 8),
    threads=st.integers(1, 8),
    walltime_s=st.none() | st.integers(1, 10**6),
    checkpoint_every_s=st.integers(1, 10**6),
    evaluate_every=st.integers(1, 100),
)
ALLOCATIONS = st.builds(
    Allocation,
    token=st.from_regex(TOKEN, fullmatch=True),
    created_at=st.floats(0, 4e9),
    shape=SHAPES,
    lanes=st.integers(1, 8),
    tasks=st.lists(st.lists(TASKS, max_size=2).map(tuple), max_size=3).map(tuple),
    data_root=st.text(),
    paths=st.dictionaries(st.text(), st.text(), max_size=2),
    argv=st.lists(st.text(), max_size=3).map(tuple),
)


@given(ALLOCATIONS)
def test_an_allocation_is_what_its_file_says(allocation: Allocation) -> None:
    assert Allocation.from_dict(json.loads(json.dumps(allocation.to_dict()))) == allocation


@given(ALLOCATIONS)
def test_every_task_of_every_index_is_hosted(allocation: Allocation) -> None:
    assert allocation.all_tasks == [task for part in allocation.tasks for task in part]
    assert allocation.shape.world_size == allocation.shape.nodes * allocation.shape.ranks


@pytest.mark.parametrize(
    "broken", [{}, {"shape": {}}, {"shape": {"backend": "local"}, "tasks": [[{}]]}]
)
def test_what_is_no_allocation_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(Unfit):
        Allocation.from_dict(broken)

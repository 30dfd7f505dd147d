"""From runs and resources to allocations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.allocation import Allocation, Shape, Task
from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.backends.base import Room
from vtjobs.orchestrator.backends.local.backend import LocalBackend
from vtjobs.orchestrator.loop.plan import (
    allowed_world_sizes,
    check_world_size,
    pack,
    shape_of,
    spread,
)

from ...support.grid_settings import grid_settings

SETTINGS = grid_settings(
    resources={"gpus_per_node": 0, "cpu_ranks": 2, "walltime": 3600}, evaluate_every=5
)


def candidates(count: int) -> list[Task]:
    return [
        Task(run_id=f"{index:016x}", grid_id="g-1", attempt=index + 1) for index in range(count)
    ]


def packed(
    count: int, *, lanes: int = 2, tasks: int = 64, shape: Shape | None = None
) -> list[Allocation]:
    shape = shape or Shape(backend="local")
    room = Room(lanes=lanes, tasks=tasks)
    return pack(candidates(count), shape, room, at=1.0, data_root="/data", paths={})


@pytest.mark.parametrize(("asked", "shared"), [(None, (1, 3)), (1, (1, 3)), (0, (0, 1))])
def test_runs_that_share_a_gpu_ask_for_one_unless_they_train_on_the_cpu(
    quiet_workspace: Workspace, monkeypatch: pytest.MonkeyPatch, asked: int | None, shared: object
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    settings = grid_settings(resources={"gpus_per_node": asked, "per_gpu": 3})
    backend = LocalBackend(quiet_workspace)
    shape = shape_of(settings, backend)
    assert (shape.gpus, shape.per_gpu) == shared
    if shape.gpus:
        assert backend.room(shape, settings).lanes == 6


def test_every_run_is_in_exactly_one_allocation_and_their_order_is_kept() -> None:
    made = packed(150)
    assert [len(allocation.all_tasks) for allocation in made] == [64, 64, 22]
    assert [task.run_id for allocation in made for task in allocation.all_tasks] == [
        f"{n:016x}" for n in range(150)
    ]
    assert [task.attempt for task in made[0].all_tasks][:3] == [1, 2, 3]


def test_an_allocation_has_no_more_lanes_than_runs() -> None:
    assert [allocation.lanes for allocation in packed(5, lanes=4, tasks=3)] == [3, 2]


def test_no_runs_make_no_allocation() -> None:
    assert packed(0) == []


def test_tokens_differ_and_can_stand_in_a_job_name_and_a_path() -> None:
    tokens = {allocation.token for allocation in packed(300, tasks=1)}
    assert len(tokens) == 300
    assert all(re.fullmatch(r"vtj-[0-9a-f]{16}", token) for token in tokens)


def test_the_shape_is_what_the_grid_asks_for(quiet_workspace: Workspace) -> None:
    shape = shape_of(SETTINGS, LocalBackend(quiet_workspace))
    assert (shape.ranks, shape.gpus, shape.walltime_s, shape.evaluate_every) == (2, 0, 3600, 5)


def test_a_grid_that_names_no_gpus_gets_what_the_machine_offers(
    quiet_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(SETTINGS, resources=changed(SETTINGS.resources, gpus_per_node=None))
    for visible, gpus, ranks in (("0,1", 1, 1), ("", 0, 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        shape = shape_of(settings, LocalBackend(quiet_workspace))
        assert (shape.gpus, shape.ranks) == (gpus, ranks)


def test_ranks_that_cannot_carry_the_virtual_ranks_are_told_which_numbers_can() -> None:
    assert check_world_size(Shape(backend="local", ranks=4), 8) is None
    problem = check_world_size(Shape(backend="local", ranks=3), 8)
    assert problem is not None and problem.key == "resources"
    assert "1, 2, 4, 8" in problem.fix


def test_an_allocation_has_as_many_places_as_an_array_of_the_site_may_have_elements() -> None:
    room = Room(lanes=2, tasks=2, places=3)
    made = pack(candidates(13), Shape(backend="slurm"), room, at=1.0, data_root="/data", paths={})
    assert [[len(place) for place in allocation.tasks] for allocation in made] == [
        [2, 2, 2],
        [2, 2, 2],
        [1],
    ]
    assert [task.run_id for allocation in made for task in allocation.all_tasks] == [
        f"{n:016x}" for n in range(13)
    ]


@pytest.mark.parametrize(
    ("asked", "walltime_s", "lead"), [(None, None, 60), (300, 3600, 300), (300, 600, 150)]
)
def test_a_run_is_told_to_stop_at_most_a_quarter_of_its_walltime_early(
    asked: int | None, walltime_s: int | None, lead: int, quiet_workspace: Workspace
) -> None:
    resources = changed(SETTINGS.resources, walltime=walltime_s)
    settings = changed(SETTINGS, site={"lead": asked}, resources=resources)
    assert shape_of(settings, LocalBackend(quiet_workspace)).lead_s == lead


def test_an_allocation_survives_its_file() -> None:
    (made,) = packed(3)
    assert Allocation.from_dict(made.to_dict()) == made


@given(st.integers(0, 400), st.integers(0, 20), st.integers(1, 3), st.integers(3, 64))
def test_runs_are_dealt_out_over_all_places_that_can_work(
    count: int, slots: int, lanes: int, tasks: int
) -> None:
    rows, room = spread(list(range(count)), Room(lanes=lanes, tasks=tasks, spread=slots))
    assert sorted(rows) == list(range(count))
    assert lanes <= room.tasks <= tasks
    places = -(-count // room.tasks)
    # No place waits while another one has two more turns than it needs, unless a place may not have
    # so many.
    assert room.tasks == tasks or not slots or room.tasks == max(lanes, -(-count // slots))
    if slots and count <= slots * tasks:
        assert places <= max(slots, -(-count // lanes))


def test_every_part_of_a_grid_is_dealt_to_every_place() -> None:
    rows, room = spread(list(range(8)), Room(lanes=1, tasks=64, spread=2))
    assert (rows, room.tasks) == ([0, 2, 4, 6, 1, 3, 5, 7], 4)


def test_a_backend_that_does_not_ask_for_it_gets_runs_in_order() -> None:
    room = Room(lanes=1, tasks=4)
    assert spread([3, 1, 2], room) == ([3, 1, 2], room)


@pytest.mark.paper("OR-05")
@given(st.integers(1, 512))
def test_a_world_size_is_allowed_where_it_divides_the_virtual_ranks(virtual_ranks: int) -> None:
    sizes = allowed_world_sizes(virtual_ranks)
    assert sizes[0] == 1 and sizes[-1] == virtual_ranks
    assert all(virtual_ranks % size == 0 for size in sizes)
    assert len(sizes) == sum(virtual_ranks % size == 0 for size in range(1, virtual_ranks + 1))

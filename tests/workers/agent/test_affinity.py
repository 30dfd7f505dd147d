"""Which cores a GPU's processes run on, on nodes that no machine here is."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.workers.agent import affinity
from vtjobs.workers.agent.affinity import cores_by_gpu, cores_near, share_out
from vtjobs.workers.agent.cards import open_nvml
from vtjobs.workers.agent.lanes import Lane

from ...support import nvml

FIRST, SECOND = frozenset(range(40)), frozenset(range(40, 80))
BOTH = FIRST | SECOND
NEAR = {"0": FIRST, "1": FIRST, "2": SECOND, "3": SECOND}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Put a module in the place of NVML's package, on a node with 80 cores."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 80)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(BOTH))
    sys.modules.pop("pynvml", None)
    yield lambda source: (tmp_path / "pynvml.py").write_text(source) and None
    sys.modules.pop("pynvml", None)


def test_each_gpu_has_the_cores_of_its_socket(driver: Callable[[str], None]) -> None:
    driver(nvml.SOCKETS)
    assert cores_near(open_nvml(), "1") == FIRST and cores_near(open_nvml(), "2") == SECOND
    assert cores_by_gpu(["0", "1", "2", "3"]) == NEAR


def test_without_a_driver_or_with_one_that_never_answers_any_core_will_do(
    driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cores_by_gpu(["0", "1"]) == {}
    monkeypatch.setattr(affinity, "WAIT_S", 0.2)
    driver(nvml.HANGS)
    assert cores_by_gpu(["0", "1"]) == {}


@pytest.mark.parametrize(
    ("gpus", "allowed"),
    [
        (["0", "1", "2"], BOTH),
        (["0"], BOTH),
        (["0", "1", "2", "9"], BOTH),
        (["0", "2"], FIRST),
        ([], BOTH),
    ],
)
def test_no_gpu_loses_cores_where_the_cards_lie_unevenly_or_are_unknown(
    gpus: list[str], allowed: frozenset[int]
) -> None:
    assert share_out(NEAR, gpus, allowed) == {}


def test_a_card_alone_on_the_cores_that_a_scheduler_has_bound_keeps_them() -> None:
    bound = frozenset(range(8))
    assert share_out(NEAR, ["0"], bound) == {"0": bound}


@given(
    near=st.dictionaries(
        st.sampled_from("abcdef"), st.sampled_from([FIRST, SECOND, frozenset({0})]), min_size=1
    ),
    allowed=st.frozensets(st.integers(0, 79), min_size=1),
)
def test_whoever_is_bound_has_at_least_its_fair_share(
    near: dict[str, frozenset[int]], allowed: frozenset[int]
) -> None:
    found = share_out(near, list(near), allowed)
    for cores in found.values():
        sharing = sum(other == cores for other in found.values())
        assert cores <= allowed and len(cores) / sharing >= len(allowed) / len(near)


def test_each_rank_of_a_run_has_the_cores_of_its_own_gpu() -> None:
    lane = Lane(index=0, gpus=["1", "2"], cores=NEAR)
    assert [lane.cores_of(rank) for rank in (0, 1)] == [tuple(range(40)), tuple(range(40, 80))]
    assert Lane(index=0).cores_of(0) == ()


def test_sockets_that_overlap_are_left_alone() -> None:
    near = {"0": frozenset(range(40)), "1": frozenset(range(20, 60))}
    assert share_out(near, ["0", "1"], frozenset(range(60))) == {}

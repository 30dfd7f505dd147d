"""How many processes may hand images over through shared memory."""

from typing import Any

from vtjobs.jobs.config.shared_memory import Fitted, fitted

MIB = 1 << 20


def of(cores: int = 8, **more: Any) -> Fitted:
    usual: dict[str, Any] = {
        "pipeline": "pil", "share_bytes": 10 * MIB, "free": 1000 * MIB, "ranks": 1,
    }  # fmt: skip
    return fitted(cores, **{**usual, **more})


def test_with_room_enough_there_are_as_many_as_cores() -> None:
    assert of() == Fitted(workers=8, decoders=8)
    assert of(cores=100) == Fitted(workers=16, decoders=16)


def test_a_single_core_has_one_worker_and_no_decoder_beside_the_rank() -> None:
    assert of(cores=1) == Fitted(workers=1, decoders=0)
    assert of(cores=0) == Fitted(workers=1, decoders=0)


def test_tensors_need_no_workers() -> None:
    assert of(pipeline="tensor", free=MIB).workers == 0
    assert of(pipeline="tensor", free=MIB).note == ""


def test_what_does_not_fit_is_cut_with_a_reason() -> None:
    # 80 % of 100 MiB take 8 shares: 2 in use, and 2 made ahead by each of 3 workers.
    found = of(free=100 * MIB)
    assert found.workers == 3
    assert found.note.startswith("3 of 8 loader workers: each hands over 10.0 MiB at a time, and")
    assert "100.0 MiB free for 1 rank(s)" in found.note


def test_ranks_share_what_is_there() -> None:
    assert of(free=100 * MIB, ranks=2).workers == 1


def test_where_nothing_fits_the_rank_makes_its_images_itself() -> None:
    assert of(free=20 * MIB).workers == 0


def test_decoders_need_no_shared_memory() -> None:
    assert of(free=0).decoders == 8


def test_without_such_memory_there_is_no_limit() -> None:
    assert of(free=None).workers == 8

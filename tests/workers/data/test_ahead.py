"""Sets that are decoded beside the training."""

import errno
import fcntl
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest
import torch

from tests.support.pictures import FIT, LIMIT, keep_small, pictures, seen
from vtjobs.workers.data.ahead import Ahead, Later
from vtjobs.workers.data.decoded import Decoded, Decoder
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError


@pytest.fixture(autouse=True)
def _keeps_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_small(monkeypatch)


def decoder(root: Path) -> Decoder:
    return Decoder(folder=root / "kept", workers=2, limit_bytes=LIMIT)


def files(root: Path) -> list[str]:
    """Return the names of the files that hold decoded images, whole ones and others."""
    return sorted(path.name for path in (root / "kept").glob("*/*") if path.suffix != ".lock")


def wait_until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.01)


def stuck_at(images: ImageSet, fatal: int, root: Path) -> ImageSet:
    """Return the same images, of which one keeps who opens it waiting for `go on`.

    Who does stands in `pid`.
    """

    def wait(index: int) -> None:
        if index == fatal:
            (root / ".pid").write_text(str(os.getpid()))
            (root / ".pid").rename(root / "pid")
            wait_until((root / "go on").exists)

    return seen(images, wait)


def is_alive(pid: int) -> bool:
    """Whether a process is there, and is no corpse that nobody has looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_soon(pid: int) -> bool:
    ends = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < ends:
        time.sleep(0.01)
    return not is_alive(pid)


def test_what_is_asked_for_before_it_is_decoded_is_decoded_here(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    later = Ahead(decoder=decoder(tmp_path)).decode(images, FIT)
    assert torch.equal(later.rows(0, 20), Decoder().decode(images, FIT).rows(0, 20))


def test_a_set_that_is_decoded_already_needs_no_process(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    decoder(tmp_path).decode(images, FIT)
    ahead = Ahead(decoder=decoder(tmp_path))
    assert isinstance(ahead.decode(images, FIT), Decoded)
    with ahead:
        assert not multiprocessing.active_children()


def test_a_set_that_is_not_kept_is_decoded_at_once(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    assert isinstance(Ahead(decoder=Decoder()).decode(images, FIT), Decoded)


def test_it_ends_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    images = stuck_at(pictures(tmp_path / "images"), 13, tmp_path)

    def rank() -> None:
        ahead = Ahead(decoder=decoder(tmp_path))
        ahead.decode(images, FIT)
        with ahead:
            wait_until((tmp_path / "pid").exists)
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=rank)
    process.start()
    process.join()
    assert ends_soon(int((tmp_path / "pid").read_text()))
    # The next rank decodes what is missing.
    whole = pictures(tmp_path / "images")
    found = decoder(tmp_path).decode(whole, FIT)
    assert torch.equal(found.rows(0, 20), Decoder().decode(whole, FIT).rows(0, 20))


def test_half_a_file_of_a_killed_process_is_removed_later(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    decoder(tmp_path).decode(images, FIT)
    (folder,) = (tmp_path / "kept").iterdir()
    for name, age_s in ((".00001.u8-old", 7200), (".00001.u8-new", 0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age_s, time.time() - age_s))
    decoder(tmp_path).decode(images, FIT)
    assert files(tmp_path) == [".00001.u8-new", "00000.u8", "00001.u8", "00002.u8"]


def test_the_process_decodes_what_is_then_only_mapped(tmp_path: Path) -> None:
    opened: list[int] = []
    images = seen(pictures(tmp_path / "images"), opened.append)
    ahead = Ahead(decoder=decoder(tmp_path))
    later = ahead.decode(images, FIT)
    with ahead:
        wait_until(ahead.decoder.files(images, FIT).are_whole)
        shown = later.rows(3, 18)
    assert not opened
    assert torch.equal(shown, Decoder().decode(images, FIT).rows(3, 18))


def test_what_is_needed_is_decoded_here_file_by_file_after_the_process_was_ended(
    tmp_path: Path,
) -> None:
    first = stuck_at(pictures(tmp_path / "images"), 13, tmp_path)
    ahead = Ahead(decoder=decoder(tmp_path))
    for images in (first, pictures(tmp_path / "others", 9)):
        ahead.decode(images, FIT)
    with ahead:
        wait_until((tmp_path / "pid").exists)
        (tmp_path / "go on").touch()
        there = []
        while not ahead.advance():
            there.append(len([name for name in files(tmp_path) if not name.startswith(".")]))
        assert not multiprocessing.active_children()
    assert sorted(set(there)) == [2, 3, 4, 5]
    assert files(tmp_path) == ["00000.u8", "00000.u8", "00001.u8", "00001.u8", "00002.u8"]


def test_a_damaged_image_is_told_while_the_model_trains(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    (tmp_path / "images" / "010.png").write_bytes(b"no picture")
    ahead = Ahead(decoder=decoder(tmp_path))
    ahead.decode(images, FIT)

    def train() -> bool:
        ahead.check()
        return False

    with ahead, pytest.raises(DataError, match=r"010\.png cannot be read"):
        wait_until(train)


def test_training_does_not_wait_for_what_others_decode(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    ahead = Ahead(decoder=decoder(tmp_path))
    ahead.decode(images, FIT)
    folder = ahead.decoder.begun(images, FIT).folder
    with (folder / "00001.lock").open("w") as others:
        fcntl.flock(others, fcntl.LOCK_EX)
        with ahead:
            wait_until((folder / "00002.u8").exists)
            wait_until(lambda: ahead.check() or not multiprocessing.active_children())
            assert files(tmp_path) == ["00000.u8", "00002.u8"]


def test_a_signal_to_all_processes_of_a_job_leaves_it_at_work(tmp_path: Path) -> None:
    images = stuck_at(pictures(tmp_path / "images"), 13, tmp_path)
    ahead = Ahead(decoder=decoder(tmp_path))
    ahead.decode(images, FIT)
    with ahead:
        wait_until((tmp_path / "pid").exists)
        for process in multiprocessing.active_children():
            process.terminate()
        (tmp_path / "go on").touch()
        wait_until(ahead.decoder.files(images, FIT).are_whole)


def test_leaving_ends_the_process_and_what_it_had_half_done(tmp_path: Path) -> None:
    images = stuck_at(pictures(tmp_path / "images"), 13, tmp_path)
    ahead = Ahead(decoder=decoder(tmp_path))
    ahead.decode(images, FIT)
    with ahead:
        wait_until((tmp_path / "pid").exists)
        assert len(files(tmp_path)) == 2
    assert files(tmp_path) == ["00000.u8"]
    assert not multiprocessing.active_children()
    assert ends_soon(int((tmp_path / "pid").read_text()))


def test_without_room_for_a_process_the_rank_decodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(ForkProcess, "start", refuse)
    images = pictures(tmp_path / "images")
    ahead = Ahead(decoder=Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT))
    later = ahead.decode(images, FIT)
    with ahead:
        ahead.check()
        assert torch.equal(later.rows(0, 20), Decoder().decode(images, FIT).rows(0, 20))


def test_a_set_that_waits_is_not_read(tmp_path: Path) -> None:
    opened: list[int] = []
    images = seen(pictures(tmp_path / "images"), opened.append)
    later = Ahead(decoder=decoder(tmp_path)).decode(images, FIT)
    later.say_used()
    assert isinstance(later, Later) and not opened

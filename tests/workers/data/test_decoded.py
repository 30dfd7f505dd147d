"""Sets of images that are decoded once and mapped by all."""

import errno
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from tests.support.pictures import FIT, LIMIT, keep_small, pictures, seen
from vtjobs.workers.data import decoded_files
from vtjobs.workers.data.decoded import Decoded, Decoder, Fit
from vtjobs.workers.data.image_set import ImageSet
from vtjobs.workers.errors import DataError


@pytest.fixture(autouse=True)
def _keeps_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_small(monkeypatch)


def in_memory(images: ImageSet, fit: Fit = FIT) -> Tensor:
    return Decoder().decode(images, fit).rows(0, len(images))


@pytest.mark.paper("DR-35")
@pytest.mark.parametrize(("crop_pct", "larger"), [(1.0, 32), (0.875, 36), (0.95, 33)])
@pytest.mark.parametrize("kernel", ["bicubic", "bilinear"])
def test_the_shorter_side_is_fitted_and_the_centre_cut_as_torchvision_does(
    crop_pct: float, larger: int, kernel: str
) -> None:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (3, 3, 41, 60), generator=draw, dtype=torch.uint8)
    fit = Fit(size=32, kernel=kernel, crop_pct=crop_pct)
    of_one_size = in_memory(ImageSet(labels=torch.zeros(3), images=pixels), fit)
    one_by_one = ImageSet(labels=torch.zeros(3), reader=lambda index: F.to_pil_image(pixels[index]))
    assert torch.equal(in_memory(one_by_one, fit), of_one_size)
    for index in range(3):
        fitted = F.resize(F.to_pil_image(pixels[index]), larger, InterpolationMode(kernel))
        assert torch.equal(of_one_size[index], F.pil_to_tensor(F.center_crop(fitted, 32)))


def test_images_of_the_right_size_are_not_copied() -> None:
    pixels = torch.zeros(3, 1, 16, 16, dtype=torch.uint8)
    found = Decoder().decode(
        ImageSet(labels=torch.zeros(3), images=pixels), Fit(size=16, kernel="bicubic")
    )
    assert found.rows(0, 3).data_ptr() == pixels.data_ptr()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_kept_set_holds_the_same_pixels_and_is_decoded_once(tmp_path: Path, workers: int) -> None:
    images = pictures(tmp_path / "images")
    wanted = in_memory(images)
    decoder = Decoder(folder=tmp_path / "kept", workers=workers, limit_bytes=LIMIT)
    assert torch.equal(decoder.decode(images, FIT).rows(0, 20), wanted)
    opened: list[int] = []
    again = decoder.decode(seen(images, opened.append), FIT)
    assert torch.equal(again.rows(5, 19), wanted[5:19]) and not opened


@given(st.integers(0, 20), st.integers(0, 20))
def test_any_part_of_a_set_can_be_had(first: int, second: int) -> None:
    whole = torch.arange(20, dtype=torch.uint8)
    start, stop = sorted((first, second))
    parts = [whole[:8].numpy(), whole[8:16].numpy(), whole[16:].numpy()]
    if start < stop:
        assert torch.equal(Decoded(parts, 8).rows(start, stop), whole[start:stop])


def _decode_noting(folder: str, kept: str, notes: str, images: int) -> None:
    def note(index: int) -> None:
        handle = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(handle, f"{index}\n".encode())
        os.close(handle)

    whole = pictures(Path(folder), images)
    found = Decoder(folder=Path(kept), limit_bytes=LIMIT).decode(seen(whole, note), FIT)
    assert torch.equal(found.rows(0, images), in_memory(whole))


def test_processes_share_the_work_of_a_set(tmp_path: Path) -> None:
    pictures(tmp_path / "images", 60)
    fork = multiprocessing.get_context("fork")
    given = (str(tmp_path / "images"), str(tmp_path / "kept"), str(tmp_path / "notes"), 60)
    ranks = [fork.Process(target=_decode_noting, args=given) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0, 0]
    opened = sorted(int(line) for line in (tmp_path / "notes").read_text().split())
    assert opened == list(range(60))


@pytest.mark.parametrize("fatal", [0, 7, 8, 13, 19])
def test_a_killed_process_loses_one_file_at_most(tmp_path: Path, fatal: int) -> None:
    images = pictures(tmp_path / "images")

    def die(index: int) -> None:
        if index == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def decode() -> None:
        Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT).decode(seen(images, die), FIT)

    process = multiprocessing.get_context("fork").Process(target=decode)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    opened: list[int] = []
    found = Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT).decode(
        seen(images, opened.append), FIT
    )
    assert torch.equal(found.rows(0, 20), in_memory(images))
    assert opened == list(range(fatal // 8 * 8, 20))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_named_and_leaves_nothing_half_done(
    tmp_path: Path, workers: int
) -> None:
    images = pictures(tmp_path / "images")
    (tmp_path / "images" / "010.png").write_bytes(b"no picture")
    decoder = Decoder(folder=tmp_path / "kept", workers=workers, limit_bytes=LIMIT)
    with pytest.raises(DataError, match=r"010\.png cannot be read"):
        decoder.decode(images, FIT)
    (kept,) = (tmp_path / "kept").iterdir()
    assert sorted(path.name for path in kept.iterdir() if path.suffix != ".lock") == ["00000.u8"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_of_the_images_file_system_keeps_its_number(tmp_path: Path, workers: int) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    images = seen(pictures(tmp_path / "images"), fail)
    decoder = Decoder(folder=tmp_path / "kept", workers=workers, limit_bytes=LIMIT)
    with pytest.raises(OSError, match="Input/output") as caught:
        decoder.decode(images, FIT)
    assert caught.value.errno == errno.EIO


def test_a_file_of_the_wrong_length_is_decoded_again(tmp_path: Path) -> None:
    images = pictures(tmp_path / "images")
    decoder = Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT)
    decoder.decode(images, FIT)
    (file,) = (tmp_path / "kept").glob("*/00001.u8")
    file.write_bytes(b"short")
    assert torch.equal(decoder.decode(images, FIT).rows(0, 20), in_memory(images))


@pytest.mark.parametrize(
    "change",
    [
        lambda images, fit, root: (images.part(torch.arange(19)), fit),
        lambda images, fit, root: (images, Fit(size=17, kernel="bicubic", crop_pct=0.875)),
        lambda images, fit, root: (images, Fit(size=16, kernel="bilinear", crop_pct=0.875)),
        lambda images, fit, root: (images, Fit(size=16, kernel="bicubic")),
        lambda images, fit, root: (_prepared_again(images), fit),
    ],
    ids=["images", "size", "kernel", "crop", "files"],
)
def test_what_may_change_a_pixel_makes_another_set(tmp_path: Path, change: Any) -> None:
    images = pictures(tmp_path / "images")
    decoder = Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT)
    decoder.decode(images, FIT)
    others, fit = change(images, FIT, tmp_path)
    found = decoder.decode(others, fit)
    assert torch.equal(found.rows(0, len(others)), in_memory(others, fit))
    assert len(list((tmp_path / "kept").iterdir())) == 2


def _prepared_again(images: ImageSet) -> ImageSet:
    assert images.files is not None
    for path in images.files:
        Image.open(path).rotate(180).save(path)
    return images


def test_what_does_not_fit_the_limit_is_kept_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = pictures(tmp_path / "images")
    found = Decoder(folder=tmp_path / "kept", limit_bytes=1000).decode(images, FIT)
    assert torch.equal(found.rows(0, 20), in_memory(images))
    assert "decoded images are kept in memory: the limit" in capsys.readouterr().err


def test_where_nothing_can_be_written_the_images_are_kept_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = pictures(tmp_path / "images")
    (tmp_path / "kept").write_text("a file")
    found = Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT).decode(images, FIT)
    assert torch.equal(found.rows(0, 20), in_memory(images))
    assert "decoded images are kept in memory" in capsys.readouterr().err


def test_a_suspended_maker_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded_files, "PATIENCE_S", 0.1)
    images = pictures(tmp_path / "images")
    marks: list[bool] = []
    reach, held = multiprocessing.Pipe()

    def stop_at(index: int) -> None:
        if index == 9:
            reach.send(os.getpid())
            signal.pause()

    def decode() -> None:
        Decoder(folder=tmp_path / "kept", limit_bytes=LIMIT).decode(seen(images, stop_at), FIT)

    process = multiprocessing.get_context("fork").Process(target=decode)
    process.start()
    try:
        held.recv()
        decoder = Decoder(
            folder=tmp_path / "kept", limit_bytes=LIMIT, on_progress=lambda: marks.append(True)
        )
        assert torch.equal(decoder.decode(images, FIT).rows(0, 20), in_memory(images))
    finally:
        process.kill()
        process.join()
    # Told of progress while it waited, beside the chunks of two files.
    assert len(marks) > 5

"""Data is made ready once, on the login node."""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import datasets as published

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue, dataset_files
from vtjobs.jobs.grid.image_folder import file_sha256
from vtjobs.workers.checkpoints.weights import read_weights
from vtjobs.workers.errors import DataError
from vtjobs.workers.tools import prepare as module
from vtjobs.workers.tools.prepare import prepare

from ...support.lab import wait_for
from ...support.published import write_svhn
from ...support.tools import call_here
from ...support.training import image_folder


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing may be downloaded")


def test_the_embedded_digits_need_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_download", _refuse)
    assert prepare("digits", tmp_path).startswith(
        "digits: 899 train, 898 test, 10 classes, sha256:"
    )


def test_a_known_set_is_downloaded_below_the_data_folder_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, place: Path) -> None:
        place.rmdir()
        write_svhn(place, published.SVHN, each=80, patch=monkeypatch)

    monkeypatch.setattr(module, "_download", download)
    facts = catalogue.datasets()["svhn"]
    monkeypatch.setitem(facts, "train", 80)
    monkeypatch.setitem(facts, "test", 80)
    assert prepare("svhn", tmp_path).startswith("svhn: 80 train, 80 test, 10 classes, md5:")
    assert (tmp_path / "svhn" / "train_32x32.mat").is_file()
    monkeypatch.setattr(module, "_download", _refuse)
    assert prepare("svhn", tmp_path, download=False).startswith("svhn: 80 train")


def test_what_was_downloaded_in_part_is_not_called_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_download", lambda *_: None)
    with pytest.raises(DataError, match="vtjobs data prepare cifar10"):
        prepare("cifar10", tmp_path)


def test_a_download_that_fails_is_told_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published.CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(
        DataError, match=f"cifar10 cannot be downloaded to {tmp_path}/cifar10: .*refused"
    ):
        prepare("cifar10", tmp_path)


class Publisher:
    """A server of small stand-ins for the two files of SVHN."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        write_svhn(folder, published.SVHN, each=80, patch=patch)
        self.stalls = False
        self.gone: set[str] = set()
        publisher = self

        class Handler(SimpleHTTPRequestHandler):
            def send_head(self) -> Any:
                if self.path.strip("/") in publisher.gone:
                    self.send_error(404)
                    return None
                return super().send_head()

            def copyfile(self, source: Any, outputfile: Any) -> None:
                if publisher.stalls:
                    outputfile.write(source.read(100_000))
                    outputfile.flush()
                    time.sleep(30)
                super().copyfile(source, outputfile)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                # A client that has gone.
                pass

        self.server = Server(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{self.server.server_port}"
        moved = {
            split: [f"{place}/{name}", name, md5]
            for split, (_, name, md5) in published.SVHN.split_list.items()
        }
        patch.setattr(published.SVHN, "split_list", moved)
        facts = catalogue.datasets()["svhn"]
        patch.setitem(facts, "train", 80)
        patch.setitem(facts, "test", 80)


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    made = Publisher(tmp_path / "published", monkeypatch)
    yield made
    made.server.shutdown()
    made.server.server_close()


def names_below(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def in_child(publisher: Publisher, root: Path, number: int) -> int:
    """Prepare SVHN in a process that gets a signal while it downloads; return how it ended."""
    publisher.stalls = True
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["prepare", "--data", str(root), "svhn"]
        os._exit(module.main())
    wait_for(lambda: list(root.glob(".svhn.part/svhn/*.mat")))
    os.kill(pid, number)
    publisher.stalls = False
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_download_tells_its_bytes_and_rate_and_leaves_the_dataset_alone(
    tmp_path: Path, publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    assert prepare("svhn", root).startswith("svhn: 80 train, 80 test")
    assert names_below(root) == ["svhn"] and dataset_files.missing("svhn", root) is None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"svhn: \S+ KiB of \S+ KiB, \S+ [KM]iB/s", line) for line in lines)


def test_a_download_that_fails_in_the_middle_leaves_nothing(
    tmp_path: Path, publisher: Publisher
) -> None:
    publisher.gone = {"test_32x32.mat"}
    root = tmp_path / "data"
    with pytest.raises(DataError, match=f"svhn cannot be downloaded to {root}/svhn: "):
        prepare("svhn", root)
    assert names_below(root) == []


def test_what_was_placed_by_hand_stays_if_the_download_fails(
    tmp_path: Path, publisher: Publisher
) -> None:
    (tmp_path / "data" / "svhn").mkdir(parents=True)
    mine = tmp_path / "data" / "svhn" / "train_32x32.mat"
    mine.write_bytes(b"mine")
    publisher.gone = {"test_32x32.mat"}
    with pytest.raises(DataError, match="cannot be downloaded"):
        prepare("svhn", tmp_path / "data")
    assert mine.read_bytes() == b"mine"
    publisher.gone = set()
    assert prepare("svhn", tmp_path / "data").startswith("svhn: 80 train")


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, publisher: Publisher) -> None:
    root = tmp_path / "data"
    assert in_child(publisher, root, signal.SIGINT) == 130
    assert names_below(root) == []


def test_a_killed_download_leaves_a_folder_that_is_no_dataset_and_the_next_one_removes_it(
    tmp_path: Path, publisher: Publisher
) -> None:
    root = tmp_path / "data"
    assert in_child(publisher, root, signal.SIGKILL) == -signal.SIGKILL
    assert names_below(root) == [".svhn.part"]
    assert dataset_files.missing("svhn", root) == "no svhn/train_32x32.mat"
    prepare("svhn", root)
    assert names_below(root) == ["svhn"]


def test_a_folder_is_counted_and_fingerprinted_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = image_folder(tmp_path / "images", train=3, test=2)
    first = prepare(str(root), tmp_path)
    assert first.startswith(f"{root}: 6 train, 4 test, 2 classes, manifest:")
    victim = root / "train" / "class-0" / "0.png"
    victim.write_bytes(victim.read_bytes() + b"x")
    assert prepare(str(root), tmp_path) != first


def test_an_unknown_name_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"unknown dataset 'cifar11'\. Did you mean 'cifar10'\?"):
        prepare("cifar11", tmp_path)
    with pytest.raises(BadInput, match=r"unknown model 'resnet51'\. Did you mean 'resnet5"):
        prepare("weights:resnet51", tmp_path)


def test_pretrained_weights_become_one_file_that_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    fetched: list[str] = []
    make = timm.create_model

    def create_model(name: str, *, pretrained: bool) -> torch.nn.Module:
        fetched.append(name)
        return make("test_vit", num_classes=3)

    monkeypatch.setattr(timm, "create_model", create_model)
    told = prepare("weights:vit_small_patch16_224", tmp_path)
    path = tmp_path / "weights" / "vit_small_patch16_224.safetensors"
    assert told == f"{path}: sha256:{file_sha256(path)}"
    assert read_weights(path).keys() == make("test_vit", num_classes=3).state_dict().keys()
    assert prepare("weights:vit_small_patch16_224", tmp_path) == told
    assert len(fetched) == 1 and [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_one_name_that_fails_does_not_keep_the_others_from_being_made_ready(tmp_path: Path) -> None:
    done = call_here("prepare", "--data", str(tmp_path), "--verify", "svhn", "nope", "digits")
    assert done.returncode == 2
    assert (
        "error: dataset svhn is not in" in done.stderr
        and "error: unknown dataset 'nope'" in done.stderr
    )
    assert done.stdout.startswith("digits: 899 train")


def test_verifying_names_every_image_that_cannot_be_read(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "images", train=4, test=2)
    wrong = sorted((root / "train").rglob("*.*"))[::3] + sorted((root / "test").rglob("*.*"))[:1]
    for path in wrong:
        path.write_bytes(path.read_bytes()[:40])
    prepare(str(root), tmp_path)
    with pytest.raises(DataError, match=f"{len(wrong)} images cannot be read") as caught:
        prepare(str(root), tmp_path, download=False)
    lines = str(caught.value).splitlines()
    assert [path for path in wrong if not any(str(path) in line for line in lines)] == []

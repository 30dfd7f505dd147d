"""Data is made ready once, on the login node."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import datasets as published

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.image_folder import file_sha256
from vtjobs.workers.checkpoints.weights import read_weights
from vtjobs.workers.data.datasets import DataError
from vtjobs.workers.tools import prepare as module
from vtjobs.workers.tools.prepare import prepare

from ...support.published import write_svhn
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
    def no_network(*_: Any, **__: Any) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(published, "CIFAR10", no_network)
    with pytest.raises(
        DataError,
        match=f"cifar10 cannot be downloaded to {tmp_path}/cifar10: Network is unreachable",
    ):
        prepare("cifar10", tmp_path)


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
    done = subprocess.run(
        [sys.executable, "-m", "vtjobs.workers.tools.prepare", "--data", str(tmp_path), "--verify", "svhn", "nope", "digits"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert (
        "error: dataset svhn is not in" in done.stderr
        and "error: unknown dataset 'nope'" in done.stderr
    )
    assert done.stdout.startswith("digits: 899 train")

"""The names of timm's models: asked once for a version, and remembered."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.grid import model_names


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often timm is asked, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(model_names, "model_names", model_names.model_names.__wrapped__)
    calls: list[str] = []
    really = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        calls.append(command[-1])
        return really(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_timm_is_asked_once_and_a_damaged_answer_is_asked_for_again(
    asked: list[str], tmp_path: Path
) -> None:
    names = model_names.model_names()
    assert {"vit_small_patch16_224", "resnet50", "cvt_13"} <= names
    assert model_names.model_names() == names and len(asked) == 1
    (remembered,) = (tmp_path / "vtjobs").glob("timm-models-*.json")
    remembered.write_text("{")
    assert model_names.model_names() == names and len(asked) == 2
    assert model_names.model_names() == names and len(asked) == 2


def test_where_timm_cannot_be_imported_no_name_is_called_unknown(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert model_names.model_names() == frozenset()
    assert list((tmp_path / "vtjobs").iterdir()) == []

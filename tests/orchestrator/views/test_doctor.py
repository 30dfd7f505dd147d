"""The checks of machine, workspace and ledger."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.config.config import Config, load_config
from vtjobs.jobs.grid import catalogue
from vtjobs.orchestrator.backends.base import Finding
from vtjobs.orchestrator.loop.context import open_context
from vtjobs.orchestrator.views.doctor import examine

from ...support.scheduler import Commands


def config(folder: Path, **settings: Any) -> Config:
    return load_config(
        {"workspace": str(folder / "runs"), **settings},
        environ={"HOME": str(folder)},
        folder=folder,
    )


def findings(found: Config) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(found)}


def test_a_sound_machine_and_workspace_pass_every_check(tmp_path: Path) -> None:
    open_context(config(tmp_path), create=True)
    found = findings(config(tmp_path))
    assert {name for name, finding in found.items() if not finding.ok} == set()
    assert {"python", "packages", "machine", "workspace", "disk", "data", "ledger"} <= set(found)


def test_a_workspace_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    found = findings(config(tmp_path))
    assert found["workspace"].ok and "will be created" in found["workspace"].text
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_an_identity_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    found = findings(config(tmp_path))["workspace"]
    assert not found.ok and "not a vtjobs workspace" in found.text


@pytest.mark.parametrize(("shift", "fix"), [(-1, "vtjobs ledger upgrade"), (1, "upgrade vtjobs")])
def test_a_ledger_of_another_schema_is_a_finding_with_its_fix(
    tmp_path: Path, shift: int, fix: str
) -> None:
    open_context(config(tmp_path), create=True).ledger.engine.dispose()
    with sqlite3.connect(tmp_path / "runs" / "ledger.sqlite") as connection:
        (table,) = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'alembic%'"
        ).fetchone()
        (number,) = connection.execute(f"SELECT version_num FROM {table}").fetchone()
        connection.execute(
            f"UPDATE {table} SET version_num = ?", (f"{int(number) + shift:0{len(number)}d}",)
        )
    found = findings(config(tmp_path))["ledger"]
    where = f" -W {tmp_path / 'runs'}" if shift < 0 else ""
    assert (found.ok, found.fix) == (False, fix + where)


def test_a_ledger_that_does_not_answer_is_a_finding_without_its_password(tmp_path: Path) -> None:
    open_context(config(tmp_path), create=True)
    away = config(tmp_path, ledger="postgresql://someone:canary-word@127.0.0.1:1/none")
    found = findings(away)
    assert not found["ledger"].ok
    assert not any("canary-word" in finding.text + finding.fix for finding in found.values())


def test_an_empty_folder_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    found = findings(config(tmp_path, data=str(tmp_path / "data")))["data"]
    assert not found.ok and "cifar10 is incomplete (no cifar10/" in found.text
    assert found.fix == "Run: vtjobs data prepare cifar10"


def test_a_dataset_is_called_prepared_if_its_files_are_there(tmp_path: Path) -> None:
    for name in catalogue.datasets()["svhn"]["files"]:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"x")
    found = findings(config(tmp_path, data=str(tmp_path / "data")))["data"]
    assert (found.ok, found.text) == (True, f"{tmp_path}/data: svhn")


def test_of_datasets_that_share_a_folder_one_is_enough(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for number in range(100):
            (tmp_path / "data" / "imagenet1k" / part / str(number)).mkdir(parents=True)
    found = findings(config(tmp_path, data=str(tmp_path / "data")))["data"]
    assert (found.ok, found.text) == (True, f"{tmp_path}/data: imagenet100")


# SLURM --------------------------------------------------------------------------------------------

AWAY = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A PATH with nothing on it but what a test puts there, and what scripts need."""
    made = Commands(tmp_path / "bin")
    for name in ("cat", "env"):
        (made.folder / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(made.folder))
    return made


def test_a_machine_without_slurm_that_needs_none_has_no_word_of_it(
    tmp_path: Path, commands: Commands
) -> None:
    assert not [name for name in findings(config(tmp_path)) if "slurm" in name]


def test_a_machine_without_slurm_that_should_have_it_is_told(
    tmp_path: Path, commands: Commands
) -> None:
    found = findings(config(tmp_path, backend="slurm"))["slurm"]
    assert (found.ok, found.text) == (False, "sbatch not found")
    (probed,) = [
        finding for finding in examine(config(tmp_path), probe=True) if finding.name == "slurm"
    ]
    assert not probed.ok


def test_a_cluster_that_is_away_is_a_fault_only_where_runs_go_there(
    tmp_path: Path, commands: Commands
) -> None:
    commands.prints("sbatch", "")
    commands.fails("scontrol", AWAY)
    used, unused = (
        findings(config(tmp_path, backend="slurm"))["slurm"],
        findings(config(tmp_path))["slurm"],
    )
    assert (used.ok, unused.ok) == (False, True)
    assert "Unable to contact slurm controller" in used.text
    assert unused.text == "not in use (checks: VTJOBS_BACKEND=slurm vtjobs doctor)"


def test_a_cluster_that_is_away_is_a_fault_where_a_grid_goes_there(
    tmp_path: Path, commands: Commands
) -> None:
    commands.prints("sbatch", "")
    commands.fails("scontrol", AWAY)
    open_context(config(tmp_path), create=True)
    grid = tmp_path / "runs" / "grids" / "one-12345678"
    grid.mkdir()
    (grid / "grid.json").write_text('{"backend": "slurm"}')
    assert not findings(config(tmp_path))["slurm"].ok


def test_settings_of_a_site_that_are_not_allowed_are_a_finding_and_reach_no_command(
    tmp_path: Path, commands: Commands
) -> None:
    commands.prints("sbatch", "")
    commands.prints("scontrol", "")
    (tmp_path / "vtjobs.yaml").write_text("slurm: {partition: 'a b'}\n")
    found = findings(config(tmp_path, backend="slurm"))["slurm"]
    assert not found.ok and "slurm.partition: character ' ' not allowed" in found.text
    assert commands.calls("scontrol") == []

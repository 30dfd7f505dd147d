"""A line in cron's table that makes passes.

The table of whoever runs the tests is left alone: the commands here keep one in a file.
"""

import subprocess
from pathlib import Path

import pytest

from vtjobs.jobs.config.config import Config, load_config
from vtjobs.jobs.errors import BadInput, VtjobsError
from vtjobs.orchestrator.housekeeping import cron

from ...support.lab import Lab
from ...support.scheduler import Commands

OTHERS = ["MAILTO=me", "0 5 * * * backup"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that stands for cron's table."""
    path = tmp_path / "table"
    commands = Commands(tmp_path / "bin")
    for name in cron.TABLES:
        missing = 'echo "no crontab for me" >&2; exit 1'
        read = f"if [ -f {path} ]; then cat {path}; else {missing}; fi"
        commands.answers(name, f'if [ "$1" = -l ]; then {read}; else cat > {path}; fi')
    monkeypatch.setenv("PATH", commands.path)
    return path


@pytest.fixture
def config(quiet_lab: Lab) -> Config:
    return quiet_lab.context.config


def lines(table: Path) -> list[str]:
    return table.read_text().splitlines()


def test_a_line_is_written_beside_the_others(table: Path, config: Config) -> None:
    table.write_text("".join(f"{line}\n" for line in OTHERS))
    line = cron.install("crontab", config, every_s=120)
    assert lines(table) == [*OTHERS, line]
    assert line.startswith("*/2 * * * * cd ") and "supervise --once" in line
    assert cron.installed("crontab", config) == line


def test_a_second_installation_replaces_the_first(table: Path, config: Config) -> None:
    cron.install("crontab", config, every_s=60)
    second = cron.install("crontab", config, every_s=600)
    assert lines(table) == [second]


@pytest.mark.parametrize("name", cron.TABLES)
def test_what_was_installed_is_removed_and_nothing_else(
    table: Path, config: Config, name: str
) -> None:
    table.write_text("".join(f"{line}\n" for line in OTHERS))
    cron.install(name, config, every_s=60)
    assert cron.remove(name, config)
    assert lines(table) == OTHERS
    assert not cron.remove(name, config)


def test_without_a_table_there_is_nothing_installed(table: Path, config: Config) -> None:
    assert cron.installed("crontab", config) is None


def test_a_table_that_cannot_be_read_is_not_written(
    table: Path, config: Config, tmp_path: Path
) -> None:
    Commands(tmp_path / "more").answers("x", "")
    (tmp_path / "bin" / "crontab").write_text("#!/bin/sh\necho busy >&2; exit 1\n")
    with pytest.raises(VtjobsError, match="busy"):
        cron.install("crontab", config, every_s=60)


def test_a_ledger_that_cron_would_not_find_is_refused(quiet_lab: Lab, table: Path) -> None:
    environ = {"HOME": "/", "VTJOBS_LEDGER": "postgresql://me@db/runs"}
    config = load_config({"workspace": str(quiet_lab.root)}, environ=environ)
    with pytest.raises(BadInput, match="VTJOBS_LEDGER"):
        cron.install("crontab", config, every_s=60)
    assert not table.exists()


def test_the_line_runs_as_it_is_written(table: Path, config: Config) -> None:
    line = cron.install("crontab", config, every_s=60)
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    done = subprocess.run(["sh", "-c", command], timeout=120, check=False)
    log = config.workspace.root / "supervise.log"
    assert done.returncode == 0, log.read_text()

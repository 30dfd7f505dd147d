"""What the commands that change runs ask and report."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import finished
from ..support.cli import Cli
from ..support.grids import tiny_grid
from ..support.lab import wait_for

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Cli]:
    """A workspace with two completed runs."""
    yield from finished(tmp_path_factory.mktemp("control"), cache, tiny_grid())


@pytest.fixture(scope="module")
def wider(trained: Cli) -> Cli:
    """The same with twelve held runs more, in a grid that has the completed ones as well."""
    trained.ok("submit", trained.write("wide.yaml", tiny_grid(name="wide", seeds="14")), "--hold")
    return trained


def test_a_rerun_of_one_completed_run_is_asked_about(trained: Cli) -> None:
    (run_id, _) = trained.ok("runs", "tiny", "-q").split()
    done = trained("rerun", run_id)
    assert done.returncode == 7
    assert "would rerun 1 run and replace 1 result. Repeat with --yes" in done.stderr
    assert trained.json("runs", run_id)[0]["state"] == "completed"


def test_the_commands_after_a_rerun_bring_the_old_result_back_if_it_has_not_started(
    trained: Cli,
) -> None:
    (run_id, _) = trained.ok("runs", "tiny", "-q").split()
    before = trained.json("report", "tiny")
    trained.ok("hold", run_id)
    said = trained("rerun", run_id, "--yes").stderr
    assert "rerun: 1 run\n1 result is out of the reports" in said
    assert trained.json("report", "tiny") != before
    for command in said.strip().rpartition(": ")[2].split(" && "):
        trained.ok(*shlex.split(command)[1:])
    trained.ok("release", run_id)
    wait_for(lambda: trained.json("runs", run_id)[0]["state"] == "completed")
    assert trained.json("report", "tiny") == before


def test_a_cancel_asks_about_the_runs_alone_that_it_can_cancel(wider: Cli) -> None:
    asked = wider("cancel", "wide")
    assert asked.returncode == 7 and "would cancel 12 runs." in asked.stderr
    assert len(wider.ok("cancel", "wide", "--dry-run").split()) == 12


def test_a_cancel_of_completed_runs_does_nothing_and_says_why(wider: Cli) -> None:
    done = wider("cancel", "wide", "status=completed")
    assert done.returncode == 3
    assert done.stderr.count("is already completed") == 2 and "cancel: 0 runs" in done.stderr


def test_many_runs_that_are_passed_over_for_one_reason_take_one_line(wider: Cli) -> None:
    done = wider("retry", "wide", "status=pending")
    assert "12 runs are passed over, such as " in done.stderr
    assert done.stderr.count("is pending and needs no retry") == 1


def test_one_run_is_not_called_runs(wider: Cli) -> None:
    run_id = wider.ok("runs", "wide", "status=pending", "-q").split()[0]
    assert wider("hold", run_id).stderr == "hold: 1 run\n"


def test_decoded_images_that_no_run_uses_go_with_all_garbage_alone(trained: Cli) -> None:
    kept = trained.folder / "runs" / "decoded" / "set"
    kept.mkdir(parents=True)
    (kept / "00000.u8").write_bytes(bytes(1000))
    os.utime(kept, (0, 0))
    of_grid = trained.json("gc", "tiny", "--dry-run")["items"]
    of_all = trained.json("gc", "all", "--dry-run")["items"]
    assert {item["why"] for item in of_all} - {item["why"] for item in of_grid} == {
        "decoded images, unused"
    }
    shutil.rmtree(kept)

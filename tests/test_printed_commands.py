"""A command that vtjobs prints works when it is pasted.

Each one in the source is parsed by the real command line. Of those whose cause is made here, the
line is taken from what a command printed, and run in a shell: in another folder than the workspace's,
which the user names by `-W`.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from vtjobs.db.models import metadata
from vtjobs.jobs.run.retry import ALIKE_RUNS
from vtjobs.orchestrator.backends.local.backend import LocalBackend
from vtjobs.orchestrator.requests import actions

from .support.cli import Cli
from .support.grids import tiny_grid
from .support.journals import ended, journal, started
from .support.lab import Lab
from .support.printed import BLANK, commands_in, parse, pattern, printed_by_the_source

PRINTED = printed_by_the_source()
# Named by a text that tells nobody to run it, or filled in where the whole command is known.
NAMED = {
    "vtjobs --help",
    "vtjobs catalog",
    "vtjobs compare",
    "vtjobs doctor",
    "vtjobs evaluate",
    "vtjobs gc",
    "vtjobs release",
    "vtjobs submit",
    "vtjobs supervise",
    "vtjobs variance",
    f"vtjobs {BLANK}",
    f"vtjobs {BLANK} {BLANK}",
    f"vtjobs {BLANK} on the nodes",
}
# Executed elsewhere: template -> why not here.
ELSEWHERE = {
    f"vtjobs data prepare {BLANK}": "downloads; tests/workers/tools/test_prepare.py",
    f"vtjobs data prepare {BLANK} --from ./": "needs archives; tests/workers/tools/test_unpack.py",
    f"vtjobs data prepare weights:{BLANK}": "downloads; tests/workers/tools/test_prepare.py",
    "vtjobs doctor --probe": "submits a job; tests/slurm/test_waiting.py",
    "vtjobs gc all": "a full disk; tests/orchestrator/housekeeping/test_gc.py",
    "vtjobs supervise --install": "writes cron's table; tests/orchestrator/housekeeping/test_cron.py",
    "vtjobs supervise --remove": "writes cron's table; tests/orchestrator/housekeeping/test_cron.py",
    f"vtjobs topup {BLANK}": "needs results; tests/test_studies.py",
}


@dataclass
class Desk:
    """A user in one folder, whose workspace is in another that the command line names."""

    lab: Lab
    cli: Cli

    def __call__(self, *words: str) -> str:
        """Return what a command prints, on either stream."""
        done = self.cli(*words, "-W", str(self.lab.root))
        return done.stdout + done.stderr

    def submit(self, **grid: str) -> list[str]:
        """Store a grid of which nothing runs, and have the queue take it."""
        runs = self.lab.submit(tiny_grid(**grid))
        self.lab.tick()
        return runs

    def ended(self, *, failure: str = "user_error", state: str = "failed", **grid: str) -> str:
        """Return a run that ended at its first try."""
        (run_id,) = self.submit(seeds="1", extra="retries: 1", **grid)
        journal(self.lab, run_id, 1, started(), ended(state, failure, signature="Error: #"))
        self.lab.tick()
        return run_id

    def paste(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell, as somebody does who has copied it."""
        if command.startswith(("vtjobs ledger rebuild", "vtjobs delete")):
            # It asks, and there is no terminal to ask on.
            command += " --yes"
        folder = Path(sys.executable).parent
        environment = self.cli.environment(PATH=f"{folder}:{os.environ['PATH']}")
        return subprocess.run(
            ["bash", "-c", command], cwd=self.cli.folder, env=environment, text=True,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, quiet_lab: Lab, cache: Path) -> Iterator[Desk]:
    quiet_lab.folder = tmp_path / "my lab"
    quiet_lab.folder.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    backend = quiet_lab.context.backend("local")
    assert isinstance(backend, LocalBackend)
    # As if another process served the queue: what is pasted starts no training.
    with backend.queue.lock():
        yield Desk(lab=quiet_lab, cli=Cli(elsewhere, cache))


def of_a_failure(desk: Desk) -> str:
    folder = desk.lab.run(desk.ended()).logs(1)
    folder.mkdir()
    (folder / "rank-0.log").write_text("hello")
    return desk("failures")


def of_a_failure_without_a_log(desk: Desk) -> str:
    desk.ended()
    return desk("failures")


def of_failures_alike(desk: Desk) -> str:
    runs = desk.submit(seeds="6", extra="retries: 1\nmax_running: 4")
    for run_id in runs[:ALIKE_RUNS]:
        failure = ended("failed", "user_error", signature="Error: #")
        journal(desk.lab, run_id, 1, started(), failure)
    desk.lab.tick()
    return desk("status")


def of_lost_checkpoints(desk: Desk) -> str:
    return desk("why", desk.ended(failure="no_checkpoint"))


def of_a_full_disk(desk: Desk) -> str:
    return desk("why", desk.ended(failure="storage"))


def of_a_hold(desk: Desk) -> str:
    runs = desk.lab.submit(tiny_grid(seeds="1"))
    actions.hold(desk.lab.context, runs)
    return desk("why", runs[0])


def of_a_run_that_is_ready(desk: Desk) -> str:
    return desk("why", desk.lab.submit(tiny_grid(seeds="1"))[0])


def of_a_cancel(desk: Desk) -> str:
    runs = desk.lab.submit(tiny_grid(seeds="1"))
    actions.cancel(desk.lab.context, runs)
    return desk("why", runs[0])


def of_a_run_without_a_log(desk: Desk) -> str:
    return desk("logs", desk.submit(seeds="1")[0])


def of_an_attempt_without_a_log(desk: Desk) -> str:
    return desk("logs", desk.submit(seeds="1")[0], "--attempt", "1")


def of_a_submission(desk: Desk) -> str:
    desk.cli.write("grid.yaml", tiny_grid(seeds="1"))
    return desk("submit", "grid.yaml", "--hold")


def of_a_submission_of_what_was_cancelled(desk: Desk) -> str:
    desk.cli.write("grid.yaml", tiny_grid(seeds="1"))
    desk("submit", "grid.yaml", "--hold")
    desk("cancel", "tiny")
    said = desk("submit", "grid.yaml")
    assert "Nothing starts. 1 run did not complete." in said and "go on" not in said
    return said


def of_a_submission_of_what_is_done(desk: Desk) -> str:
    desk.cli.write("grid.yaml", tiny_grid(seeds="1"))
    (run_id,) = desk.submit(seeds="1")
    journal(desk.lab, run_id, 1, started(), ended("completed"))
    desk.lab.tick()
    said = desk("submit", "grid.yaml")
    assert "Nothing is left to do" in said
    return said


def of_an_edited_grid(desk: Desk) -> str:
    actions.hold(desk.lab.context, desk.lab.submit(tiny_grid(seeds="2")))
    desk.cli.write("grid.yaml", tiny_grid(seeds="[7]"))
    return desk("submit", "grid.yaml", "--hold")


def of_a_wait_for_a_failure(desk: Desk) -> str:
    return desk("wait", desk.ended())


def of_a_wait_for_a_cancelled_run(desk: Desk) -> str:
    runs = desk.lab.submit(tiny_grid(seeds="1"))
    actions.cancel(desk.lab.context, runs)
    return desk("wait", *runs)


def of_another_workspace(desk: Desk) -> str:
    desk.cli.env["VTJOBS_WORKSPACE"] = "not-here"
    desk.cli.write("held.yaml", tiny_grid(seeds="1"))
    # Submission is what remembers a workspace.
    desk("submit", "held.yaml", "--hold")
    inside = desk.lab.folder / "notes"
    inside.mkdir()
    desk.cli.folder = inside
    done = desk.cli("status")
    return done.stdout + done.stderr


def of_an_older_ledger(desk: Desk) -> str:
    old = "UPDATE alembic_version SET version_num = '0001'"
    since = ("runs.streams",)
    since += tuple(
        f"attempts.{name}" for name in ("usage", "trained_s", "starts_at", "per_gpu", "software")
    )
    drops = (f"ALTER TABLE {name.replace('.', ' DROP COLUMN ')}" for name in since)
    return _of_a_ledger(desk, "DROP TABLE tags", "DROP TABLE cell_names", *drops, old)


def of_a_ledger_without_tables(desk: Desk) -> str:
    return _of_a_ledger(desk, *(f"DROP TABLE {table}" for table in metadata.tables))


def _of_a_ledger(desk: Desk, *statements: str) -> str:
    desk.lab.submit(tiny_grid(seeds="1"))
    desk.lab.context.ledger.engine.dispose()
    with sqlite3.connect(desk.lab.root / "ledger.sqlite") as connection:
        for statement in statements:
            connection.execute(statement)
    return desk("status")


def of_a_notice_that_cannot_be_sent(desk: Desk) -> str:
    here = desk.cli.folder
    desk.cli.write("told.sh", "cat > told\ntest ! -e down\n")
    desk.cli.write("vtjobs.yaml", "notify: {command: bash told.sh, on: finish}")
    (here / "down").touch()
    desk("supervise", "--once")
    (run_id,) = desk.submit(seeds="1")
    journal(desk.lab, run_id, 1, started(), ended("completed"))
    desk("supervise", "--once")
    said, deadline = "", time.monotonic() + 60
    while "could not be sent" not in said and time.monotonic() < deadline:
        said = desk("status")
    (here / "down").unlink()
    return said + json.loads((here / "told").read_text(encoding="utf-8"))["body"]


def of_a_new_grid_file(desk: Desk) -> str:
    done = desk.cli("init", "my grid.yaml")
    return done.stderr


def of_an_empty_grid_file(desk: Desk) -> str:
    desk.cli.write("grid.yaml", "")
    return desk("plan", "grid.yaml")


def of_an_archived_grid(desk: Desk) -> str:
    desk.ended()
    desk("archive", "tiny")
    return desk("status")


def of_an_archive_of_what_is_to_come(desk: Desk) -> str:
    desk.submit()
    return desk("archive", "tiny")


def of_an_archive_of_nothing(desk: Desk) -> str:
    desk.submit()
    return desk("archive", "other")


TABLE = "backbone,dataset,head,seed,top1\nvit,pets,supervised,0,{}\n"


def _imports(desk: Desk, top1: float, *words: str) -> str:
    (desk.cli.folder / "old.csv").write_text(TABLE.format(top1))
    return desk("import", "old.csv", *words)


def of_an_import(desk: Desk) -> str:
    return _imports(desk, 70.0)


def of_an_import_under_a_taken_name(desk: Desk) -> str:
    _imports(desk, 70.0)
    return _imports(desk, 71.0)


def of_an_import_into_a_grid_without_its_cells(desk: Desk) -> str:
    desk.ended()
    return _imports(desk, 70.0, "--into", "tiny")


# Cause -> the templates that it has printed. What is pasted must succeed.
CASES: list[tuple[Callable[[Desk], str], set[str]]] = [
    (of_a_failure, {f"vtjobs logs {BLANK}", f"vtjobs retry {BLANK}"}),
    (of_a_failure_without_a_log, {f"vtjobs show {BLANK}", f"vtjobs retry {BLANK}"}),
    (
        of_failures_alike,
        {f"vtjobs retry {BLANK}", f"vtjobs release {BLANK}", f"vtjobs cancel {BLANK}"},
    ),
    (of_lost_checkpoints, {f"vtjobs rerun {BLANK}"}),
    (of_a_full_disk, {f"vtjobs gc {BLANK}", f"vtjobs retry {BLANK}"}),
    (of_a_hold, {f"vtjobs release {BLANK}"}),
    (of_a_run_that_is_ready, {"vtjobs supervise --once"}),
    (of_a_cancel, {f"vtjobs retry {BLANK}"}),
    (of_a_run_without_a_log, {f"vtjobs why {BLANK}"}),
    (of_an_attempt_without_a_log, {f"vtjobs show {BLANK}"}),
    (
        of_a_submission,
        {f"vtjobs release {BLANK}", f"vtjobs status {BLANK}", f"vtjobs cancel {BLANK}"},
    ),
    (of_a_submission_of_what_was_cancelled, {f"vtjobs retry {BLANK}"}),
    (of_a_submission_of_what_is_done, {f"vtjobs report {BLANK}"}),
    (of_an_edited_grid, {f"vtjobs cancel grid={BLANK} 'grid!={BLANK}' state={BLANK}"}),
    (of_a_wait_for_a_failure, {f"vtjobs failures {BLANK}"}),
    (of_a_wait_for_a_cancelled_run, {f"vtjobs retry {BLANK}"}),
    (of_another_workspace, {f"vtjobs status -W {BLANK}"}),
    (of_an_archived_grid, {"vtjobs status --archived"}),
    (of_an_archive_of_what_is_to_come, {f"vtjobs cancel {BLANK}"}),
    (of_an_archive_of_nothing, {"vtjobs status"}),
    (of_an_older_ledger, {"vtjobs ledger upgrade"}),
    (of_a_ledger_without_tables, {"vtjobs ledger rebuild"}),
    (of_a_notice_that_cannot_be_sent, {"vtjobs notify --test", f"vtjobs report {BLANK}"}),
    (of_a_new_grid_file, {f"vtjobs plan {BLANK}"}),
    (of_an_import, {f"vtjobs report {BLANK}"}),
    (of_an_import_under_a_taken_name, {f"vtjobs delete {BLANK}"}),
    (of_an_import_into_a_grid_without_its_cells, {f"vtjobs report {BLANK}"}),
    (of_an_empty_grid_file, {"vtjobs init new-grid.yaml"}),
]


@pytest.mark.parametrize("template", sorted(PRINTED.keys() - NAMED))
def test_a_command_in_a_text_of_the_source_is_one_that_the_command_line_takes(
    template: str,
) -> None:
    parse(template)


def test_every_command_that_is_printed_has_a_case() -> None:
    executed = set[str]().union(*(templates for _, templates in CASES))
    known = NAMED | executed | ELSEWHERE.keys()
    assert PRINTED.keys() - known == set(), "add a case that makes its cause real"
    assert known - PRINTED.keys() == set(), "nothing prints it any more"


@pytest.mark.parametrize(
    ("cause", "templates"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_printed_command_works_when_it_is_pasted(
    desk: Desk, cause: Callable[[Desk], str], templates: set[str]
) -> None:
    said = cause(desk)
    commands = commands_in(said)
    for template in templates:
        assert any(pattern(template).fullmatch(command) for command in commands), said
    for command in commands:
        done = desk.paste(command)
        empty_log = command.startswith("vtjobs logs") and done.returncode == 3
        assert done.returncode == 0 or empty_log, f"{command}\n{done.stdout}\n{done.stderr}"

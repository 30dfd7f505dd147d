"""One line in the user's crontab (or SLURM's scrontab) that makes passes over a workspace."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from ...jobs.atomic_files import open_file
from ...jobs.config.config import Config
from ...jobs.config.interpreter import module_command
from ...jobs.errors import BadInput, VtjobsError

TABLES = ("crontab", "scrontab")
DEADLINE_S = 30
# What a pass may take, in SLURM's own cron.
_ASKED = ("#SCRON --time=00:10:00", "#SCRON --mem=2G", "#SCRON --job-name=vtjobs-supervise")


def choose(asked: str | None) -> str:
    """Return which table is used: the one asked for, else the first that is here.

    Raises:
        BadInput: it is none of them.
        VtjobsError: it is not on this machine.
    """
    if asked is not None and asked not in TABLES:
        raise BadInput(f"--with: expected {' or '.join(TABLES)}, got {asked!r}")
    found = [name for name in ([asked] if asked else TABLES) if shutil.which(name)]
    if not found:
        raise VtjobsError(
            f"{asked or ' and '.join(TABLES)} not found on this machine. Units for systemd are in"
            " deploy/supervise; `vtjobs supervise` goes on in a terminal"
        )
    return found[0]


def install(table: str, config: Config, *, every_s: float) -> str:
    """Write the line of this workspace, in place of an older one; return it.

    Raises:
        BadInput: the ledger's URL is in a variable, which cron does not have.
        VtjobsError: the table cannot be written.
    """
    origin = config.settings["ledger"].origin
    if config.get("ledger") and not Path(origin).is_absolute():
        raise BadInput(
            f"the ledger is named by {origin}, which {table} does not have. Write `ledger:` into"
            " vtjobs.yaml or ~/.config/vtjobs/config.yaml"
        )
    # Here, so that it has the mode of the workspace's files; cron's shell appends to it.
    os.close(open_file(_log(config), os.O_WRONLY))
    line = _line(config, every_s=every_s)
    asked = list(_ASKED) if table == "scrontab" else []
    _write(table, [*_others(table, config), *asked, line])
    return line


def remove(table: str, config: Config) -> bool:
    """Take the line of this workspace out of the table; return whether there was one."""
    is_there = installed(table, config) is not None
    if is_there:
        _write(table, _others(table, config))
    return is_there


def installed(table: str, config: Config) -> str | None:
    """Return the line of this workspace, None where there is none."""
    return next((line for line in _read(table) if _is_mine(line, config)), None)


def _line(config: Config, *, every_s: float) -> str:
    root, folder = config.workspace.root.resolve(), (config.folder or Path.cwd()).resolve()
    command = module_command("vtjobs.cli", "supervise", "--once", "-W", str(root))
    log = shlex.quote(str(_log(config)))
    text = f"cd {shlex.quote(str(folder))} && {shlex.join(command)} >> {log} 2>&1 {_mark(config)}"
    minutes = max(1, round(every_s / 60))
    # To cron an unescaped % ends the line.
    return f"*/{minutes} * * * * " + text.replace("%", r"\%")


def _log(config: Config) -> Path:
    return config.workspace.root.resolve() / "supervise.log"


def _mark(config: Config) -> str:
    # The shell takes it for a comment.
    return f"# vtjobs {config.workspace.root.resolve()}"


def _is_mine(line: str, config: Config) -> bool:
    return line.endswith(_mark(config).replace("%", r"\%"))


def _others(table: str, config: Config) -> list[str]:
    """Return the lines of the table but this workspace's, with what was asked for it."""
    kept: list[str] = []
    for line in _read(table):
        if _is_mine(line, config):
            while kept and kept[-1] in _ASKED:
                kept.pop()
        else:
            kept.append(line)
    return kept


def _read(table: str) -> list[str]:
    done = _call([table, "-l"])
    # Without a table both fail and say so; any other failure must not empty one that is there.
    if done.returncode and "no " not in done.stderr.lower():
        raise VtjobsError(f"{table} -l failed: {done.stderr.strip()}")
    return done.stdout.splitlines() if done.returncode == 0 else []


def _write(table: str, lines: list[str]) -> None:
    done = _call([table, "-"], text="".join(f"{line}\n" for line in lines))
    if done.returncode:
        raise VtjobsError(f"{table} refused the line: {done.stderr.strip()}")


def _call(command: list[str], text: str | None = None) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise VtjobsError(f"{command[0]} cannot be called: {error}") from None

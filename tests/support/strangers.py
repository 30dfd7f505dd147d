"""A second UNIX user, whom only root can become."""

import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .cli import PRELOADED

STRANGER = "nobody"
# What a command may import: another user may not be able to read this interpreter's files.
ROOMS = ("jobs", "db", "orchestrator", "analysis", "web", "commands")
MODULES = (*PRELOADED, "encodings.utf_8_sig", "multiprocessing")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_stranger(
    home: Path, *arguments: str, groups: Sequence[int] = (), **env: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command as another UNIX user, from modules that this process has read already.

    Args:
        home: their home; nothing has to be there.
        arguments: of vtjobs.
        groups: that they are in beside their own.
        env: more variables.
    """
    process = start_as_stranger(home, *arguments, groups=groups, **env)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def start_as_stranger(
    home: Path, *arguments: str, groups: Sequence[int] = (), **env: str
) -> "subprocess.Popen[str]":
    """Start a command as another UNIX user; see `as_stranger`."""
    identity = pwd.getpwnam(STRANGER)
    script = (
        "import importlib, os, pkgutil, sys, vtjobs; from vtjobs.cli import main\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
        f"for room in {ROOMS!r}:\n"
        "    for found in pkgutil.walk_packages([f'{vtjobs.__path__[0]}/{room}'], f'vtjobs.{room}.'):\n"
        "        if '.migrations' not in found.name: importlib.import_module(found.name)\n"
        f"os.setgroups({list(groups)!r}); os.setgid({identity.pw_gid}); "
        f"os.setuid({identity.pw_uid}); sys.argv = {['vtjobs', *arguments]!r}; main()"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **env}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd="/",
    )


def contents(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return of every file who owns it, when it was changed, and what is in it."""
    return {
        str(path): (path.stat().st_uid, path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }

"""Check this machine and this workspace before they disappoint somebody."""

import json
import os
import platform
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...db.engine import (
    SCHEMA_VERSION,
    file_system_of,
    is_network,
    open_engine,
    parse_url,
    require_writable,
    schema_version,
)
from ...jobs.config.backends import is_known, names, part
from ...jobs.config.config import Config
from ...jobs.config.host import cpu_count, visible_gpus
from ...jobs.documents import Document
from ...jobs.errors import VtjobsError
from ...jobs.grid.catalogue import datasets
from ...jobs.grid.dataset_files import missing, needs_files, remedy
from ...jobs.units import format_bytes
from ..backends.base import Finding
from ..loop.context import ledger_url

OLDEST_SQLITE = (3, 35, 0)
LOW_DISK_BYTES = 2 << 30
LOW_SHM_BYTES = 64 << 20


class Check(Document, frozen=True, kw_only=True, omit_defaults=False):
    """The result of one check."""

    name: str
    """Of what was checked."""
    ok: bool
    """Whether it passed."""
    text: str
    """What was seen."""
    fix: str
    """What to do about it, or nothing."""


class Examination(Document, frozen=True, kw_only=True, omit_defaults=False):
    """What `vtjobs doctor` saw."""

    schema_version: int
    ok: bool
    """Whether every check passed."""
    checks: list[Check]
    """In the order of the output."""


def examination(findings: Sequence[Finding]) -> Examination:
    """Return the findings as one document."""
    checks = [Check(name=one.name, ok=one.ok, text=one.text, fix=one.fix) for one in findings]
    return Examination(schema_version=1, ok=all(one.ok for one in checks), checks=checks)


def examine(config: Config, *, probe: bool = False) -> list[Finding]:
    """Run every check; a check that itself fails is a finding.

    Args:
        config: the settings.
        probe: whether to run a job on a node of the cluster and ask what it sees there.
    """
    checks: list[Callable[[Config], Finding]] = [
        _python,
        _packages,
        _machine,
        _workspace,
        _disk,
        _shared_memory,
        _data,
        _sqlite,
        _ledger,
    ]
    found = []
    for check in checks:
        try:
            found.append(check(config))
        except (VtjobsError, OSError) as error:
            found.append(Finding(name=check.__name__.lstrip("_"), ok=False, text=str(error)))
    return found + _backends(config, probe=probe)


def _backends(config: Config, *, probe: bool) -> list[Finding]:
    """Ask the backends in use; where that is this machine, whatever schedulers may be here too."""
    used = {config.get("backend"), *_backends_of_grids(config)}
    found: list[Finding] = []
    for name in names() if "local" in used else sorted(used):
        module = part(name, "doctor")
        if module is None:
            continue
        try:
            found += module.examine(config, in_use=name in used, probe=probe)
        except VtjobsError as error:
            found.append(Finding(name, False, str(error)))
    return found


def _backends_of_grids(config: Config) -> set[str]:
    """Return the backends that the workspace's grids go to."""
    found: set[str] = set()
    for path in config.workspace.grids.glob("*/grid.json"):
        try:
            name = str(json.loads(path.read_bytes())["backend"])
        except (OSError, ValueError, KeyError):
            # Another check is about damaged grids.
            continue
        found |= {name} if is_known(name) else set()
    return found


def _python(_: Config) -> Finding:
    return Finding(name="python", ok=True, text=platform.python_version())


def _packages(_: Config) -> Finding:
    versions, missing = [], []
    for package in ("torch", "torchvision", "timm", "sqlalchemy", "pydantic"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return Finding(
            name="packages",
            ok=False,
            text=f"missing: {', '.join(missing)}",
            fix="pip install vtjobs",
        )
    return Finding(name="packages", ok=True, text=", ".join(versions))


def _machine(_: Config) -> Finding:
    gpus = visible_gpus()
    return Finding(name="machine", ok=True, text=f"{cpu_count()} CPU cores, {len(gpus)} GPUs")


def _workspace(config: Config) -> Finding:
    root = config.workspace.root
    kind = file_system_of(root)
    if not root.exists():
        return Finding(name="workspace", ok=True, text=f"{root} (will be created; {kind})")
    config.workspace.check()
    facts = root.stat()
    if facts.st_uid != os.getuid():
        return Finding(name="workspace", ok=False, text=f"{root} belongs to user {facts.st_uid}")
    config.workspace.require_writable()
    with tempfile.TemporaryFile(dir=root):
        pass
    shared = "shared" if is_network(kind) else "local"
    return Finding(name="workspace", ok=True, text=f"{root} ({kind}, {shared})")


def _disk(config: Config) -> Finding:
    folder = config.workspace.root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    ok = free >= LOW_DISK_BYTES
    return Finding(
        name="disk",
        ok=ok,
        text=f"{format_bytes(free)} free",
        fix="" if ok else f"vtjobs gc all{config.where}",
    )


def _shared_memory(_: Config) -> Finding:
    path = Path("/dev/shm")
    free = shutil.disk_usage(path).free if path.exists() else 0
    ok = free >= LOW_SHM_BYTES
    fix = "" if ok else "Loader workers need it; in a container raise --shm-size"
    return Finding(
        name="shared_memory", ok=ok, text=f"{format_bytes(free)} free in /dev/shm", fix=fix
    )


def _data(config: Config) -> Finding:
    root = config.data_root
    lacks = {name: missing(name, root) for name in datasets() if needs_files(name)}
    whole = [name for name, lack in lacks.items() if lack is None]
    if any((root / "weights").glob("*")):
        whole.append("weights")
    text = f"{root}: {', '.join(whole) or 'no datasets prepared (digits needs none)'}"
    begun = _begun(root, lacks)
    if not begun:
        return Finding(name="data", ok=True, text=text)
    gaps = ", ".join(f"{name} is incomplete ({lacks[name]})" for name in begun)
    fix = ". ".join(remedy(name, root) for name in begun)
    return Finding(name="data", ok=False, text=f"{text}; {gaps}", fix=fix)


def _begun(root: Path, lacks: dict[str, str | None]) -> list[str]:
    """Return datasets whose folder is there and holds no whole dataset, one for each folder."""
    by_folder: dict[str, list[str]] = {}
    for name in lacks:
        folder = next(iter(datasets()[name]["files"])).split("/")[0]
        by_folder.setdefault(folder, []).append(name)
    return [
        names[0]
        for folder, names in by_folder.items()
        if (root / folder).is_dir() and all(lacks[name] is not None for name in names)
    ]


def _sqlite(_: Config) -> Finding:
    ok = sqlite3.sqlite_version_info >= OLDEST_SQLITE
    return Finding(
        name="sqlite", ok=ok, text=sqlite3.sqlite_version, fix="" if ok else "needs 3.35 or newer"
    )


def _ledger(config: Config) -> Finding:
    if not config.workspace.identity.exists():
        return Finding(name="ledger", ok=True, text="none yet")
    url = parse_url(ledger_url(config, config.workspace.check()))
    engine = open_engine(url, read_only=not config.workspace.is_ours())
    found = schema_version(engine)
    where = url.render_as_string(hide_password=True)
    require_writable(engine)
    if found is None:
        return Finding(name="ledger", ok=True, text=f"{where}: none yet")
    ok = found == SCHEMA_VERSION
    fix = f"vtjobs ledger upgrade{config.where}" if found < SCHEMA_VERSION else "upgrade vtjobs"
    return Finding(name="ledger", ok=ok, text=f"{where}: schema {found}", fix="" if ok else fix)

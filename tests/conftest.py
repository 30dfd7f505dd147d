"""Shared fixtures. Services that a test needs are private to the test run and end with it."""

import gc
import os
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from .support.cli import Cli
from .support.pgbouncer import PgBouncer, bouncer_binary
from .support.postgres import PostgresServer, binaries, roomy_memory
from .support.ray import RayCluster
from .support.slurm import SlurmCluster, missing

if TYPE_CHECKING:
    from vtjobs.workers.agent.template_client import Forge

    from .support.lab import Lab

# Properties are tried on the same examples every time, however slow the machine is.
settings.register_profile("calm", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("calm")


# Whoever asks for one of these talks to a real service: `make test-clusters` runs it.
SERVICES = frozenset(("postgres", "own_server", "slurm_cluster", "ray_cluster", "chromium"))


# The profile of deploy/slurm-dev on which the tests on SLURM are to run.
SLURM_PROFILE = os.environ.get("VTJOBS_SLURM_PROFILE")
# Which of the long tests are to run, such as `1/3`; all of them where it is not set.
LONG_SHARE = os.environ.get("VTJOBS_LONG_SHARE")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    # Modules and tests live to the end: to look through them for garbage took a fifth of collecting.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a service or train, and skip those about another shape of cluster."""
    if LONG_SHARE:
        left_out = [item for item in items if not is_in_share(item, LONG_SHARE)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_in_share(item, LONG_SHARE)]
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if SERVICES & fixtures:
            item.add_marker("clusters")
        # A lab's queue is served, unless it is a quiet one.
        if "lab" in fixtures and "quiet_lab" not in fixtures:
            item.add_marker("training")
        if SLURM_PROFILE and SLURM_PROFILE not in (names := profiles_of(item) or [SLURM_PROFILE]):
            item.add_marker(pytest.mark.skip(f"is about the profile {' or '.join(names)}"))


def is_in_share(item: pytest.Item, share: str) -> bool:
    """Whether a test is not long, or is one of this share's, which its name alone decides."""
    number, shares = map(int, share.split("/"))
    is_long = item.get_closest_marker("long") is not None
    return not is_long or zlib.crc32(item.nodeid.encode()) % shares == number - 1


def profiles_of(item: pytest.Item) -> list[str]:
    """Return the profiles that a test names; none fits any."""
    marker = item.get_closest_marker("profiles")
    return [str(name) for name in marker.args] if marker else []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the tests that needed a second try: each is a defect to be found."""
    again = sorted({report.nodeid for report in terminalreporter.stats.get("rerun", [])})
    if again:
        terminalreporter.write_line(f"{len(again)} test(s) needed a second try:")
        for name in again:
            terminalreporter.write_line(f"  {name}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of backbones' facts for the whole test run."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cli(tmp_path: Path, cache: Path) -> Iterator[Cli]:
    """A user in an empty folder; what they left running is ended afterwards."""
    user = Cli(tmp_path, cache)
    yield user
    end_processes(user.workspace)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="vtjobs-open-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
        end_processes(path / "runs")


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A folder like one where a file system is mounted: without the link, its files are away."""
    (tmp_path / "disk").mkdir()
    path = tmp_path / "mount"
    path.symlink_to(tmp_path / "disk")
    return path


def finished(folder: Path, cache: Path, grid: str) -> Iterator[Cli]:
    """Yield a user whose one grid has finished, for a module's tests that only read."""
    user = Cli(folder, cache)
    user.write("grid.yaml", grid)
    user.ok("submit", "grid.yaml", "--wait")
    yield user
    end_processes(user.workspace)


@pytest.fixture
def lab(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[Lab]":
    """An empty workspace driven from here; agents look at claims and cancels twice a second."""
    from vtjobs.workers.agent import attempt

    from .support.lab import Lab
    from .support.tools import answer_here

    answer_here(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("VTJOBS_FENCE_S", "0.5")
    monkeypatch.setattr(attempt, "FENCE_S", 0.5)
    made = Lab(tmp_path)
    yield made
    end_processes(made.root)


@pytest.fixture
def quiet_lab(lab: "Lab") -> "Lab":
    """An empty workspace whose queue nobody serves: what is submitted stays where it is."""
    lab.asleep = True
    return lab


@pytest.fixture(scope="module")
def forge() -> "Iterator[Forge]":
    """One warm template for a module's tests: importing torch takes seconds."""
    from .support.lab import a_template

    with a_template() as made:
        yield made


def processes_of(workspace: Path) -> list[int]:
    """Return the queue's and agents' processes of a workspace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(workspace).encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def end_processes(workspace: Path) -> None:
    """End the queue and the agents of a workspace; ranks die with their agents."""
    deadline = time.monotonic() + 10
    while (found := processes_of(workspace)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private PostgreSQL server."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-pg-", dir=roomy_memory()))
    server = PostgresServer(folder)
    server.create()
    server.start()
    yield server
    server.stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler before the private PostgreSQL server, with two connections for all clients."""
    if bouncer_binary() is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    pooler = PgBouncer(postgres)
    pooler.start()
    yield pooler
    pooler.stop()


@pytest.fixture(scope="session")
def slurm_clusters() -> Iterator[Callable[[str], SlurmCluster]]:
    """Private SLURM clusters by their profile, each started once by each worker that needs it."""
    if lacking := missing():
        pytest.skip(
            f"SLURM is not installed: no {', '.join(lacking)} (apt-get install slurm-wlm slurmdbd"
            " mariadb-server)"
        )
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-slurm-", dir=roomy_memory()))
    made: dict[str, SlurmCluster] = {}

    def cluster(profile: str) -> SlurmCluster:
        if profile not in made:
            started = SlurmCluster(folder / profile, "--fast", f"--profile={profile}")
            started.up()
            made[profile] = started
        return made[profile]

    try:
        yield cluster
    finally:
        for one in made.values():
            one.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm_cluster(
    request: pytest.FixtureRequest, slurm_clusters: Callable[[str], SlurmCluster]
) -> SlurmCluster:
    """The cluster that a test breaks: of the profile that is asked for, or that it names."""
    return slurm_clusters(SLURM_PROFILE or [*profiles_of(request.node), "default"][0])


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray cluster of two nodes with a pretended GPU each."""
    # Ray's sockets have long names, and paths to sockets must be short.
    cluster = RayCluster(Path(tempfile.mkdtemp(prefix="vtjobs-ray-", dir=roomy_memory())))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(cluster.folder, ignore_errors=True)


@pytest.fixture
def ray(ray_cluster: RayCluster) -> RayCluster:
    """The cluster, whole."""
    ray_cluster.up()
    return ray_cluster


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, whole and with an empty queue, for one test."""
    yield slurm_cluster
    slurm_cluster.settle()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.clusters)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty ledger, once on each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()

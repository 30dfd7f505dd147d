"""One history.

A grid, a cluster, people, faults, and what must be true all the time and in the end.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vtjobs.jobs.config.config import Config, load_config
from vtjobs.jobs.grid.load import Intake, take_in
from vtjobs.jobs.workspace.stored_grid import freeze
from vtjobs.orchestrator.backends.slurm.settings import Slurm
from vtjobs.orchestrator.loop.context import Context, open_context
from vtjobs.orchestrator.loop.plan import shape_of
from vtjobs.orchestrator.loop.tick import tick
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.requests.data_check import DataCheck
from vtjobs.orchestrator.requests.submit import Prepared, submit

from ..support.postgres import roomy_memory
from .checks import check_end
from .cluster import Cluster
from .people import Process
from .profile import Profile, draw
from .seams import Wire, simulated
from .views import Views
from .watch import Violation, Watch
from .world import BEGIN, World

QUARTER_S = 900.0
# Simulated: faults cease after this long at the latest, and then all must come to rest within the
# time after.
STORM_S = 2700.0
REST_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a history came to."""

    seed: int
    runs: int
    fingerprint: str
    simulated_s: float
    attempts: int
    jobs: int
    states: dict[str, int]


class History:
    """One seed, one history."""

    def __init__(self, seed: int, profile: Profile, folder: Path) -> None:
        self.profile = profile
        self.world = World(seed)
        self.config = _workspace(folder, lanes=profile.lanes)
        self.cluster = Cluster(self.world, profile, self.config.workspace)
        self.watch = Watch(self.world, self.cluster, profile)
        self.cluster.watch = self.watch
        self.views = Views(self.config, self.world)
        self.running: list[Process] = []
        self.wire = Wire(self.world, self.cluster, self.running)
        names = ("one", "two", "user")
        self.people = [
            Process(name, self.world, profile, self.config, self.running) for name in names
        ]
        self.is_over = False

    # The course of events -------------------------------------------------------------------------

    def run(self) -> Told:
        """Let it happen; raise Violation where something is not as it must be."""
        try:
            with simulated(self.world, self.wire):
                self._begin()
                self._storm()
                self._rest()
                found = check_end(self.watch, self.profile)
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        finally:
            for process in self.people:
                process.leave()
            self.views.leave()
        return Told(
            seed=self.world.seed,
            runs=len(self.watch.runs),
            fingerprint=self.world.fingerprint(),
            simulated_s=self.world.now - BEGIN,
            attempts=found["attempts"],
            jobs=len(self.cluster.all_jobs),
            states=found["states"],
        )

    def _begin(self) -> None:
        intake = _intake(self.profile)
        while not self.people[2].do("submits", lambda context: self._submit(context, intake)):
            self.world.run_until(self.world.now + 30.0)
        self.watch.runs = [run.run_id for run in intake.expansion.runs]
        self.watch.parents = {run.run_id: run.parent for run in intake.expansion.runs if run.parent}
        for process in self.people[:2]:
            self.world.after(self.world.between(0.0, 60.0), self._tick, process)
        self.world.after(self.world.between(0.0, QUARTER_S), self._fail_controller)
        self.world.after(self.world.between(0.0, QUARTER_S), self._fail_books)
        self.world.after(self.world.between(10.0, 200.0), self._meddle)
        if self.profile.admins:
            self._administrate_later()
        for _ in range(self.profile.lose_ledger):
            self.world.after(self.world.between(100.0, 1500.0), self._lose_ledger)

    def _submit(self, context: Context, intake: Intake) -> None:
        site = Slurm(handover=self.profile.handover).model_dump(mode="json")
        frozen = freeze(
            intake.grid, intake.expansion, at=self.world.now, backend="slurm", site=site
        )
        backend = context.backend("slurm")
        shape = shape_of(frozen.settings, backend)
        room = backend.room(shape, frozen.settings)
        prepared = Prepared(
            grid=intake.grid,
            expansion=intake.expansion,
            frozen=frozen,
            text=b"",
            warnings=[],
            shape=shape,
            room=room,
            data=DataCheck(absent={}, unseen=frozenset(), folder=Path()),
        )
        submit(context, prepared, canary=self.profile.canary)

    def _storm(self) -> None:
        begun = self.world.now
        while self.world.now < begun + STORM_S and not (
            self.watch.is_settled and self.world.now > begun + 1200.0
        ):
            self.world.run_until(self.world.now + 60.0)

    def _rest(self) -> None:
        """No more faults: everything must find its end."""
        self.is_over = True
        self.cluster.come_to_rest()
        for process in self.people:
            process.calm = True
        if not self.cluster.is_up:
            self.cluster.continue_()
        if not self.cluster.books.is_up:
            self.cluster.books.up()
        user, deadline = self.people[2], self.world.now + REST_S
        user.do("releases all", lambda context: actions.release(context, self.watch.runs))
        while not (
            self.watch.is_settled and not self.cluster.pending and not self.watch.live_jobs()
        ):
            if self.world.now > deadline:
                raise Violation(f"I6: not at rest a day later: {self.watch.unsettled()}")
            self.world.run_until(self.world.now + self.world.between(60.0, 240.0))
            self._operate(user, "ticks", tick)
            user.do("releases all", lambda context: actions.release(context, self.watch.runs))

    def _operate(self, process: Process, what: str, action: Any) -> bool:
        """Have a process do something, and look at what came of it."""
        done = process.do(what, action)
        if not self.running:
            self.watch.look()
            self.views.look()
        return done

    # Who comes and goes ---------------------------------------------------------------------------

    def _tick(self, process: Process) -> None:
        if self.is_over:
            return
        self._operate(process, "ticks", tick)
        if self.world.chance(0.1) and not process.is_busy:
            process.leave()
        self.world.after(self.world.between(30.0, 300.0), self._tick, process)

    def _meddle(self) -> None:
        """A user's command, or somebody's scancel."""
        if self.is_over:
            return
        user, world = self.people[2], self.world
        if self.profile.meddling and not user.is_busy:
            self._meddle_once(user)
        often = self.profile.meddling * max(1.0, self.profile.runs / 100)
        world.after(world.between(0.2, 1.8) * QUARTER_S / max(often, 0.01), self._meddle)

    def _administrate_later(self) -> None:
        late = self.world.between(0.2, 1.8) * QUARTER_S / self.profile.admins
        self.world.after(late, self._administrate)

    def _administrate(self) -> None:
        if not self.is_over:
            self.cluster.administrate()
            self._administrate_later()

    def _meddle_once(self, user: Process) -> None:
        chosen = self.world.random.sample(
            self.watch.runs, min(len(self.watch.runs), self.world.random.choice([1, 1, 3, 10]))
        )
        match self.world.random.choice(
            ["cancel", "retry", "retry", "rerun", "hold", "release", "scancel", "scancel"]
        ):
            case "cancel":
                self._operate(
                    user, f"cancels {chosen}", lambda context: self.watch.cancelled(context, chosen)
                )
            case "retry":
                over = [
                    run
                    for run in self.watch.runs
                    if self.watch.states.get(run) in ("failed", "cancelled")
                ]
                chosen = over[: len(chosen)] or chosen
                self._operate(
                    user,
                    f"retries {chosen}",
                    lambda context: self.watch.retried(context, chosen, clean=False),
                )
            case "rerun":
                self._operate(
                    user,
                    f"reruns {chosen[:1]}",
                    lambda context: self.watch.retried(context, chosen[:1], clean=True),
                )
            case "hold":
                self._operate(
                    user, f"holds {chosen}", lambda context: actions.hold(context, chosen)
                )
            case "release":
                self._operate(
                    user, f"releases {chosen}", lambda context: actions.release(context, chosen)
                )
            case "scancel":
                self.watch.scancelled()

    # What fails by itself -------------------------------------------------------------------------

    def _fail_controller(self) -> None:
        if self.is_over or not self.profile.outage:
            return
        self.cluster.is_up = False
        self.world.note("controller down")
        self.world.after(self.world.between(5.0, 400.0), self._mend_controller)

    def _mend_controller(self) -> None:
        if not self.cluster.is_up:
            self.cluster.continue_()
        if not self.is_over:
            self.world.after(
                self.world.between(0.2, 1.8) * QUARTER_S / self.profile.outage,
                self._fail_controller,
            )

    def _fail_books(self) -> None:
        if self.is_over or not self.profile.outage:
            return
        self.cluster.books.is_up = False
        self.world.note("accounting down")
        self.world.after(self.world.between(5.0, 900.0), self._mend_books)

    def _mend_books(self) -> None:
        if not self.cluster.books.is_up:
            self.cluster.books.up()
            self.world.note("accounting up")
        if not self.is_over:
            self.world.after(
                self.world.between(0.2, 1.8) * QUARTER_S / self.profile.outage, self._fail_books
            )

    def _lose_ledger(self) -> None:
        if self.is_over or self.running:
            return
        self.world.note("ledger lost")
        for process in self.people:
            process.leave()
        self.views.leave()
        for path in self.config.workspace.root.glob("ledger.sqlite*"):
            path.unlink()
        self.watch.ledger_lost()


# What every history begins with -------------------------------------------------------------------


@lru_cache(maxsize=8)
def _grid_text(runs: int, stages: bool, lanes: int, settings: str) -> str:
    heads = "heads: [supervised]" if not stages else ""
    chain = (
        "stages:\n  - {name: pretrain, heads: [relvit]}\n  - {name: finetune, heads: [supervised],"
        " init_from: pretrain}"
        if stages
        else ""
    )
    seeds = max(1, runs // 2) if stages else runs
    return f"""\
name: sim
backbones: [{{vit_small_patch16_224: {{patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}}}}]
datasets: [digits]
{heads}
seeds: {seeds}
recipe: quickstart
{settings}
{chain}
"""


def _intake(profile: Profile) -> Intake:
    resources = f"{{gpus_per_node: 1, pack: {profile.lanes}, walltime: {profile.walltime_s}s}}"
    settings = [f"resources: {resources}", f"retries: {profile.tries}"]
    settings += [f"max_running: {profile.max_running}"] if profile.max_running else []
    return _taken_in(_grid_text(profile.runs, profile.stages, profile.lanes, "\n".join(settings)))


@lru_cache(maxsize=4)
def _taken_in(text: str) -> Intake:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as stream:
        stream.write(text)
        stream.flush()
        return take_in(stream.name)


@lru_cache(maxsize=1)
def _empty_workspace() -> Path:
    """One workspace with an empty ledger, of which each history has a copy.

    The migrations take a third of a second.
    """
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-sim-empty-", dir=roomy_memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    open_context(_config(folder), create=True).ledger.engine.dispose()
    return folder


def _config(folder: Path) -> Config:
    return load_config(
        {"workspace": str(folder / "runs")}, environ={"HOME": str(folder)}, folder=folder
    )


def _workspace(folder: Path, *, lanes: int) -> Config:
    shutil.copytree(_empty_workspace() / "runs", folder / "runs")
    return _config(folder)


def play(seed: int, runs: int, profile: Profile | None = None) -> Told:
    """Play the history of a seed.

    Raises:
        Violation: something that must never happen has happened; the message says how to see it
            again.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"vtjobs-sim-{seed}-", dir=roomy_memory()))
    history = History(seed, profile or draw(seed, runs), folder)
    try:
        return history.run()
    except Violation as error:
        again = f"python -m tests.simulation.run --seed {seed} --runs {runs}"
        raise Violation(
            f"{error}\nseed {seed}, again: {again}", list(history.world.recent)
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)

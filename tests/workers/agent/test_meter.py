"""What an attempt uses, as its journal has it."""

import os
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.documents import from_plain
from vtjobs.jobs.workspace.events import Usage, typed
from vtjobs.jobs.workspace.journal import encode, read_all
from vtjobs.workers.agent import meter as meter_module
from vtjobs.workers.agent.cards import Cards, CardUse
from vtjobs.workers.agent.meter import Meter
from vtjobs.workers.agent.processes import ProcessUse
from vtjobs.workers.agent.template_client import Forge

from ...support import nvml
from ...support.grids import tiny_grid
from ...support.lab import Lab, serve
from .test_agent import start

GIB = 1 << 30


class Shown(Cards):
    """Cards that say what a test has them say."""

    def want(self, gpus: object) -> None:
        return


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A meter, and all that it looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *gpus: str) -> None:
        self.clock, self.cards = Clock(), Shown()
        self.processes: dict[int, ProcessUse] = {}
        self.looks: list[float] = []
        self.before_s = 0.0
        monkeypatch.setattr(meter_module, "use_of_trees", self._uses)
        self.meter = Meter(gpus, clock=self.clock, watched=self.cards)

    def _uses(self, roots: list[int]) -> dict[int, ProcessUse]:
        self.looks.append(self.clock.now - 100.0)
        return {pid: self.processes[pid] for pid in roots if pid in self.processes}

    def at(self, age_s: float, **processes: tuple[float, int]) -> None:
        """Let time pass: process -> its CPU seconds and resident bytes."""
        self.clock.now = 100.0 + age_s
        self.processes = {int(pid[1:]): ProcessUse(*use) for pid, use in processes.items()}
        self.meter.look({1: self.before_s, 2: 0.0})

    @property
    def usage(self) -> Usage:
        return from_plain(self.meter.usage, Usage)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch, "0", "1")


def test_nothing_is_known_before_the_first_look(bench: Bench) -> None:
    bench.at(0.5, p1=(9.0, GIB))
    assert bench.usage == Usage() and bench.meter.usage == {}


def test_looks_come_after_a_second_then_at_twice_the_age_then_every_half_minute(
    bench: Bench,
) -> None:
    for quarter in range(4 * 130):
        bench.at(quarter / 4, p1=(1.0, GIB))
    assert bench.looks == [1, 2, 4, 8, 16, 32, 62, 92, 122]


def test_cpu_is_the_mean_over_the_attempt_and_memory_the_most_at_a_look(bench: Bench) -> None:
    bench.at(1.0, p1=(1.0, GIB), p2=(2.0, 3 * GIB))
    bench.at(2.0, p1=(2.0, GIB), p2=(4.0, GIB))
    assert bench.usage == Usage(cpu_cores=3.0, host_memory_bytes=4 * GIB)


def test_what_a_process_spent_on_an_earlier_run_is_not_this_ones(bench: Bench) -> None:
    bench.before_s = 5.0
    bench.at(1.0, p1=(6.0, GIB))
    bench.at(2.0, p1=(7.0, GIB))
    assert bench.usage.cpu_cores == 1.0


def test_a_rank_that_has_ended_keeps_its_cpu_time(bench: Bench) -> None:
    bench.at(1.0, p1=(1.0, GIB), p2=(1.0, GIB))
    bench.at(4.0, p1=(4.0, GIB))
    assert bench.usage.cpu_cores == 1.25


def test_a_dip_while_a_child_waits_to_be_counted_takes_nothing_back(bench: Bench) -> None:
    bench.at(1.0, p1=(4.0, GIB))
    bench.at(2.0, p1=(3.0, GIB))
    assert bench.usage.cpu_cores == 2.0


def test_without_ranks_the_last_figures_stand(bench: Bench) -> None:
    bench.at(1.0, p1=(1.0, GIB))
    bench.at(60.0)
    assert bench.usage == Usage(cpu_cores=1.0, host_memory_bytes=GIB)


def test_a_proc_that_cannot_be_read_is_no_reason_to_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Any:
        raise OSError("no /proc")

    monkeypatch.setattr(meter_module, "use_of_trees", broken)
    bench.at(1.0, p1=(1.0, GIB))
    assert bench.usage == Usage()


def test_utilisation_is_the_mean_over_cards_and_looks_and_memory_the_most_on_one_card(
    bench: Bench,
) -> None:
    for number, uses in enumerate(((0.2, 0.4), (0.6, 0.8)), start=1):
        bench.cards.newest = {
            gpu: CardUse(number, use, int(10 * use) * GIB)
            for gpu, use in zip("01", uses, strict=True)
        }
        # An agent asks several times a second; a look counts once.
        bench.at(0.1)
        bench.at(0.2)
    assert bench.usage == Usage(gpu_utilisation=0.5, gpu_used_bytes=8 * GIB)


def test_another_runs_cards_and_what_was_seen_before_the_attempt_are_not_its_own(
    bench: Bench,
) -> None:
    bench.cards.newest = {gpu: CardUse(7, 0.5, GIB) for gpu in "02"}
    later = Meter(["0"], clock=bench.clock, watched=bench.cards)
    later.look({})
    assert later.usage == {}
    bench.cards.newest = {gpu: CardUse(8, use, GIB) for gpu, use in (("0", 0.25), ("2", 1.0))}
    later.look({})
    assert later.usage == {"gpu_utilisation": 0.25, "gpu_used_bytes": GIB}


def test_an_event_of_rank_0_is_completed_and_the_end_repeats_what_it_said(bench: Bench) -> None:
    bench.at(1.0, p1=(2.0, GIB))
    event = {"epoch": 1, "usage": {"images_per_s": 812.5, "peak_memory_bytes": None}}
    bench.meter.complete(event)
    assert event["usage"] == {"images_per_s": 812.5, "cpu_cores": 2.0, "host_memory_bytes": GIB}
    assert bench.meter.usage == event["usage"]
    untold = {"epoch": 1, "set": "test"}
    bench.meter.complete(untold)
    assert untold == {"epoch": 1, "set": "test"}


def test_however_long_an_attempt_runs_what_it_uses_takes_as_many_bytes(
    bench: Bench,
) -> None:
    trained = {"images_per_s": 99999.9, "data_wait": 0.1234, "peak_memory_bytes": 80 * GIB}
    trained |= {"step_s": 12.345678, "step_std_s": 1.234567, "parameters": 632_126_720}
    event: dict[str, Any] = {"usage": trained}
    for number in range(1, 2000):
        bench.cards.newest = {gpu: CardUse(number, 0.123, 80 * GIB) for gpu in "01"}
        bench.at(30.0 * number, p1=(1e6 + 400.0 * number, 500 * GIB))
    bench.meter.complete(event)
    assert set(event["usage"]) == set(Usage.__struct_fields__)
    assert len(encode(event)) < 330


# In an agent --------------------------------------------------------------------------------------


def usages(lab: Lab, run_id: str) -> dict[str, list[Usage | None]]:
    """Return kind of event -> what each event of that kind says of usage."""
    found: dict[str, list[Usage | None]] = {}
    for line in read_all(lab.run(run_id).journal(1, 0)):
        event = typed(line)
        found.setdefault(str(line["kind"]), []).append(getattr(event, "usage", None))
    return found


def test_epochs_checkpoints_and_the_end_say_what_was_used_and_nothing_else_grows(
    lab: Lab, forge: Forge
) -> None:
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=4))
    hosted = lab.host(lab.allocate([run_id]), forge)
    serve(forge, hosted)
    found = usages(lab, run_id)
    assert len(found["epoch"]) == 4
    for usage in (*found["epoch"], *found["checkpoint"], *found["end"]):
        assert usage is not None and usage.images_per_s is not None and usage.images_per_s > 0
        assert (usage.peak_memory_bytes, usage.gpu_utilisation, usage.gpu_used_bytes) == (None,) * 3
    assert found.get("heartbeat", [None])[-1] is None
    assert found["evaluation"] == [None] * len(found["evaluation"])


def agent_with(lab: Lab, folder: Path, source: str) -> tuple[str, Usage]:
    """Serve a run of some seconds with a module in NVML's place; return the run, and its usage."""
    folder.mkdir()
    (folder / "pynvml.py").write_text(source)
    (run_id,) = lab.submit(tiny_grid(seeds="1", epochs=15, slow=True))
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    agent = start(
        lab,
        lab.allocate([run_id], gpus=1),
        PYTHONPATH=search,
        CUDA_VISIBLE_DEVICES="0",
        VTJOBS_DEVICE="cpu",
        VTJOBS_GPU_LOOK_S="0.2",
    )
    assert agent.wait(timeout=120) == 0
    (usage,) = usages(lab, run_id)["end"]
    assert usage is not None
    return run_id, usage


def test_an_agent_writes_down_what_nvml_and_proc_say(lab: Lab, tmp_path: Path) -> None:
    _, usage = agent_with(lab, tmp_path / "nvml", nvml.WORKS)
    assert (usage.gpu_utilisation, usage.gpu_used_bytes) == (0.87, 7 * GIB)
    assert usage.cpu_cores is not None and 0 < usage.cpu_cores < 64
    assert usage.host_memory_bytes is not None and usage.host_memory_bytes > 64 << 20


def test_an_nvml_that_hangs_holds_up_neither_the_run_nor_the_agent(
    lab: Lab, tmp_path: Path
) -> None:
    _, usage = agent_with(lab, tmp_path / "nvml", nvml.HANGS)
    assert (usage.gpu_utilisation, usage.gpu_used_bytes) == (None, None)
    assert usage.images_per_s is not None

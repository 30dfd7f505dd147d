"""Whatever a person types is done or refused: it never ends in a traceback.

The seeds are fixed, so a failure comes again; the time is bounded, so more cases cost nothing.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.config.config import DEFAULTS, load_config
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.load import take_in

from .support.called import called
from .support.grids import tiny_grid
from .support.lab import Lab
from .support.nasty import NUMBERS, VALUES, WORDS, spoiled_grid

# Of each kind of input.
SECONDS = 5.0
GRID: dict[str, Any] = {
    "name": "small",
    "description": "words",
    "backbones": ["vit_mini", {"vit_small_patch16_224": {"patch_size": 8, "embed_dim": 16}}],
    "datasets": ["digits"],
    "heads": ["supervised", {"drloc": {"weight": 0.5, "mode": "l1"}}],
    "seeds": [0, 1],
    "recipe": "quickstart",
    "train": {"epochs": 2, "warmup_epochs": 0, "lr": 0.001, "batch_size": 128},
    "axes": {"train.weight_decay": [0.0, 0.1]},
    "exclude": [{"backbone": "vit_mini", "head": "drloc"}],
    "include": [{"backbone": "vit_mini", "dataset": "digits", "head": "drloc", "seed": [5]}],
    "overrides": [{"when": {"head": "drloc"}, "set": {"head.drloc.weight": 0.1}}],
    "resources": {"gpus_per_node": 0, "cpu_ranks": 1, "threads": 1, "walltime": "1h"},
    "retries": 2,
    "checkpoint_every": "10m",
    "max_running": 4,
    "compare": {"metric": "top1"},
    "data": {"sets": []},
    "backend": {"local": {}},
}
READING = (
    "status", "runs", "show", "why", "logs", "failures", "report", "compare", "variance", "curve",
    "diff", "eff", "usage", "import", "scatter",
)  # fmt: skip
NUMERIC = (
    ("runs", "--limit"), ("plan grid.yaml", "--max-runs"), ("logs 0000", "--tail"),
    ("logs 0000", "--attempt"), ("curve", "--height"), ("report", "--decimals"), ("power", "--power"), ("power", "--alpha"),
)  # fmt: skip


def draws(seed: int, most: int) -> Iterator[random.Random]:
    """Yield a source of random draws per case, for a bounded time."""
    deadline = time.monotonic() + SECONDS
    for case in range(most):
        if time.monotonic() > deadline:
            return
        yield random.Random(seed * 100_000 + case)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a workspace with two runs, and a grid."""
    lab = Lab(tmp_path_factory.mktemp("fuzz"), asleep=True)
    lab.submit(tiny_grid(seeds="2", epochs=1))
    lab.context.ledger.engine.dispose()
    return lab.folder


@pytest.fixture(autouse=True)
def here(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("VTJOBS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(cache / "state"))
    monkeypatch.chdir(folder)


def test_a_grid_file_is_taken_or_refused(tmp_path: Path) -> None:
    wrong: list[str] = []
    for draw in draws(1, 600):
        path = tmp_path / "grid.yaml"
        path.write_text(spoiled_grid(draw, GRID), "utf-8", "surrogatepass")
        try:
            take_in(str(path), max_runs=1000, data_root=tmp_path)
        except BadInput as error:
            if not str(error):
                wrong.append(f"no message\n{path.read_text()}")
        except Exception as error:
            wrong.append(f"{error!r}\n{path.read_text()}")
    assert wrong[:3] == []


def test_a_setting_of_the_command_line_is_taken_or_refused(tmp_path: Path) -> None:
    wrong: list[str] = []
    keys = ("train.lr", "seeds", "heads", "resources.walltime", "name", "", ".", "a.b.c", "axes")
    for draw in draws(2, 200):
        word = f"{draw.choice(keys)}={draw.choice(VALUES)}"
        done = called("plan", "missing.yaml", "--set", word)
        wrong += [f"{word[:80]}: {done.traceback}"] if done.traceback or done.code != 2 else []
    assert wrong[:3] == []


def test_words_of_a_command_line_are_taken_or_refused() -> None:
    wrong: list[str] = []
    for draw in draws(3, 300):
        words = [draw.choice(READING), *draw.choices(WORDS, k=draw.randint(1, 3))]
        done = called(*words)
        wrong += [f"{words}: {done.traceback}"] if done.traceback or done.code == 1 else []
    assert wrong[:3] == []


@pytest.mark.parametrize(("command", "option"), NUMERIC)
def test_a_number_of_a_command_line_is_taken_or_refused(command: str, option: str) -> None:
    wrong: list[str] = []
    for value in NUMBERS:
        done = called(*command.split(), option, value)
        wrong += [f"{value[:40]}: {done.traceback}"] if done.traceback else []
    assert wrong == []


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a/" * 2000, "\udcff", "~nobody/x", ""])
def test_a_path_of_a_command_line_is_taken_or_refused(name: str) -> None:
    for words in (
        ("plan", name), ("plan", "grid.yaml", "-W", name), ("init", name),
        ("report", "--html", name), ("status", "-W", name),
    ):  # fmt: skip
        done = called(*words)
        assert not done.traceback and done.code in range(1 + 6), (words, done)


@pytest.mark.parametrize("name", ["a/" * 2000, "~nobody/x"])
def test_a_path_of_a_dataset_is_taken_or_refused(name: str) -> None:
    # What verifies is a process of its own, which imports torch.
    done = called("data", "verify", name)
    assert not done.traceback and done.code in range(1 + 6), done


def test_settings_of_files_and_variables_are_taken_or_refused(tmp_path: Path) -> None:
    wrong: list[str] = []
    keys = [*DEFAULTS, "slurm.partition", "", "workspace.x", "é"]
    for draw in draws(4, 600):
        key, value = draw.choice(keys), draw.choice(VALUES)
        (tmp_path / "vtjobs.yaml").write_text(spoiled_grid(draw, {key: value, "poll_s": 3}))
        variable = f"VTJOBS_{key.upper().replace('.', '_')}"
        text = draw.choice((str(value), "\udcff", "x" * 100_000))
        for environ in ({}, {variable: text}):
            try:
                load_config({}, environ=environ, folder=tmp_path)
            except BadInput:
                continue
            except Exception as error:
                wrong.append(f"{key} {value!r:.80} {error!r:.200}")
    assert wrong[:3] == []

"""What NVML says of cards, and that nothing it does can hold up or end whoever asks.

There is no card here, and the real answer is that nothing is known.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vtjobs.workers.agent.cards import CardUse, look_at, open_nvml

from ...support import nvml

Place = Callable[[str], Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Put a module in the place of NVML's package, and open it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("pynvml", None)

    def write(source: str) -> Any:
        (tmp_path / "pynvml.py").write_text(source)
        return open_nvml()

    yield write
    sys.modules.pop("pynvml", None)


def test_utilisation_and_memory_in_use_are_those_of_the_granted_cards(place: Place) -> None:
    found = look_at(place(nvml.WORKS), ["0", nvml.UUID], 3)
    assert found == dict.fromkeys(["0", nvml.UUID], CardUse(3, 0.87, 7 << 30))


@pytest.mark.parametrize("gpu", ["MIG-1234", "1", "GPU-unknown", "7", ""])
def test_nothing_is_known_of_a_part_of_a_card_or_of_an_unknown_one(place: Place, gpu: str) -> None:
    assert look_at(place(nvml.WORKS), [gpu], 1) == {}


def test_an_index_among_unequal_cards_may_mean_another_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = place(nvml.WORKS.replace('return "H100"', "return str(card)"))
    assert look_at(module, ["0", nvml.UUID], 1).keys() == {nvml.UUID}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert look_at(module, ["0", nvml.UUID], 1).keys() == {"0", nvml.UUID}


def test_a_card_that_says_only_one_of_the_two_is_known_by_that(place: Place) -> None:
    module = place(nvml.WORKS)
    del module.nvmlDeviceGetUtilizationRates
    assert look_at(module, ["0"], 1) == {"0": CardUse(1, None, 7 << 30)}


@pytest.mark.parametrize(
    "source",
    [
        "raise ImportError('no such module')",
        "raise OSError('damaged')",
        nvml.WORKS + "\ndef nvmlInit(): raise NVMLError('no driver')\n",
    ],
)
def test_a_package_that_does_not_work_is_none(place: Place, source: str) -> None:
    assert place(source) is None


def ask(folder: Path, source: str, *, until: str) -> str:
    """Have a process look at a card until something is true, and end; return what it printed."""
    (folder / "pynvml.py").write_text(source)
    code = (
        "import time\nfrom vtjobs.workers.agent.cards import cards\n"
        f"cards().want(['0'])\nwhile not ({until}): time.sleep(0.01)\nprint(cards().newest)"
    )
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": search, "VTJOBS_GPU_LOOK_S": "0.01"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_cards_are_looked_at_again_and_again_until_the_process_ends(tmp_path: Path) -> None:
    said = ask(tmp_path, nvml.WORKS, until="any(use.number > 3 for use in cards().newest.values())")
    assert "utilisation=0.87" in said


def test_a_call_that_never_returns_keeps_nobody_from_ending(tmp_path: Path) -> None:
    source = nvml.HANGS.replace("print(", "import builtins; builtins.asked = print(")
    said = ask(tmp_path, source, until="hasattr(__import__('builtins'), 'asked')")
    assert said == "asked\n{}\n"

"""How busy this node's GPUs are, as NVML tells it.

A thread asks: a call into a driver that is in trouble may never return, and no run waits for it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_S = float(os.environ.get("VTJOBS_GPU_LOOK_S", "30"))


@dataclass(frozen=True, slots=True)
class CardUse:
    """One look at a card. None: the card does not say."""

    number: int
    """Of the look, from 1."""
    utilisation: float | None
    """Share of the last moments in which a kernel ran, 0 to 1."""
    used_bytes: int | None
    """Memory in use, by whatever process."""


class Cards:
    """The cards that runs of this process were given, looked at from time to time.

    Without NVML or its package (`nvidia-ml-py`) nothing is known of them, and so it is with parts
    of a card (MIG), which NVML measures no utilisation of.
    """

    def __init__(self) -> None:
        self._wanted: frozenset[str] = frozenset()
        # Replaced as a whole by the thread, so that no reader sees half of a look.
        self.newest: dict[str, CardUse] = {}

    def want(self, gpus: Iterable[str]) -> None:
        """Look at these GPUs too; they are named as in CUDA_VISIBLE_DEVICES."""
        is_first = not self._wanted
        self._wanted |= frozenset(gpus)
        if is_first and self._wanted:
            threading.Thread(target=self._watch, name="cards", daemon=True).start()

    def _watch(self) -> None:
        # Waits first: what was on the card before the runs started is not theirs.
        time.sleep(LOOK_S)
        nvml = open_nvml()
        number = 0
        while nvml is not None:
            number += 1
            self.newest = look_at(nvml, self._wanted, number)
            time.sleep(LOOK_S)


@cache
def cards() -> Cards:
    """Return the cards of this process: it has one NVML, and one thread that may hang in it."""
    return Cards()


def open_nvml() -> Any:
    """Return NVML's module, ready for use; None where there is none."""
    # A broken package or driver may raise anything; whatever it is, nothing is known then.
    try:
        # Not a requirement of vtjobs: a node without it trains as well.
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml


def look_at(nvml: Any, gpus: Iterable[str], number: int) -> dict[str, CardUse]:
    """Return GPU -> what NVML says of its card, for those that it knows."""
    found: dict[str, CardUse] = {}
    for gpu in gpus:
        card = _or_none(card_of, nvml, gpu)
        if card is not None:
            share = _or_none(_utilisation, nvml, card)
            found[gpu] = CardUse(number, share, _or_none(_used_bytes, nvml, card))
    return found


def _or_none(ask: Callable[[Any, Any], T], nvml: Any, what: Any) -> T | None:
    try:
        return ask(nvml, what)
    except Exception:
        return None


def _utilisation(nvml: Any, card: Any) -> float:
    return float(nvml.nvmlDeviceGetUtilizationRates(card).gpu) / 100


def _used_bytes(nvml: Any, card: Any) -> int:
    return int(nvml.nvmlDeviceGetMemoryInfo(card).used)


def card_of(nvml: Any, gpu: str) -> Any:
    """Return NVML's handle of a GPU; None where it is a part of a card or may be another one."""
    if gpu.startswith("MIG-"):
        return None
    if not gpu.isdigit():
        card = nvml.nvmlDeviceGetHandleByUUID(gpu)
    elif os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or _are_equal(nvml):
        card = nvml.nvmlDeviceGetHandleByIndex(int(gpu))
    else:
        return None
    return None if _is_split(nvml, card) else card


def _are_equal(nvml: Any) -> bool:
    # CUDA counts the fastest card first, NVML by the bus: the same only among equal cards.
    every = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    return len({nvml.nvmlDeviceGetName(card) for card in every}) == 1


def _is_split(nvml: Any, card: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(card)[0])
    except nvml.NVMLError:
        # A model that cannot be split.
        return False

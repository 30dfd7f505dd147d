"""Which of a node's cores each GPU's processes run on: those of its own socket.

What a core of another socket writes reaches the card through both, and the memory that it writes
into is not the card's. A scheduler that binds by itself leaves nothing to do here.
"""

import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .cards import card_of, open_nvml

# The driver is asked before the first run starts. One in trouble may never answer.
WAIT_S = 5.0
_BITS = 64

Cores = frozenset[int]


def cores_by_gpu(gpus: Sequence[str]) -> dict[str, Cores]:
    """Return GPU -> the cores that its ranks shall run on; empty: any.

    Args:
        gpus: all that this process was given, as CUDA_VISIBLE_DEVICES names them.
    """
    found: dict[str, Cores] = {}
    asking = threading.Thread(target=_ask, args=(gpus, found), name="affinity", daemon=True)
    asking.start()
    asking.join(WAIT_S)
    if asking.is_alive():
        return {}
    return share_out(found, gpus, frozenset(os.sched_getaffinity(0)))


def share_out(near: Mapping[str, Cores], gpus: Sequence[str], allowed: Cores) -> dict[str, Cores]:
    """Return GPU -> the cores that are near it, where no GPU's processes lose any by it.

    Empty where the GPUs lie unevenly: those of the fuller socket would have fewer cores than now,
    when all have the same. Empty as well where sockets overlap.

    Args:
        near: GPU -> cores of its socket; those that are not known are missing.
        gpus: all of them.
        allowed: cores that this process may use.
    """
    own = {gpu: near[gpu] & allowed for gpu in gpus if gpu in near}
    if not gpus or len(own) < len(set(gpus)):
        return {}
    sharing = Counter(own.values())
    fair = len(allowed) / len(own)
    overlap = sum(map(len, sharing)) > len(frozenset[int]().union(*sharing))
    if overlap or any(len(cores) < fair * count for cores, count in sharing.items()):
        return {}
    return own


def cores_near(nvml: Any, gpu: str) -> Cores | None:
    """Return the cores of the socket that a card is on, by NVML; None: it is not known."""
    card = card_of(nvml, gpu)
    if card is None:
        return None
    words = -(-(os.cpu_count() or 1) // _BITS)
    masks = nvml.nvmlDeviceGetCpuAffinity(card, words)
    return frozenset(
        _BITS * word + bit
        for word, mask in enumerate(masks)
        for bit in range(_BITS)
        if int(mask) >> bit & 1
    )


def _ask(gpus: Sequence[str], found: dict[str, Cores]) -> None:
    nvml = open_nvml()
    for gpu in gpus if nvml is not None else ():
        # Whatever a driver raises, nothing is known then.
        try:
            cores = cores_near(nvml, gpu)
        except Exception:
            continue
        if cores:
            found[gpu] = cores

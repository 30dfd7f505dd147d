"""Counts the memory of tensors, on any device."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def memory_of(model: nn.Module, step: Callable[[], None]) -> int:
    """Return the bytes of all tensors that are alive at once while a step runs, at most.

    What a kernel takes for itself and gives back is not seen.

    Args:
        model: its weights and buffers count from the beginning.
        step: passes it some images.
    """
    counter = _Alive([*model.parameters(), *model.buffers()])
    with counter:
        step()
    return counter.most


class _Alive(TorchDispatchMode):
    """Sees what every operation takes and gives, those of a backward pass included."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        # Address of a storage -> its bytes.
        self._alive: dict[int, int] = {}
        self.most = 0
        self._add(tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count what it leaves."""
        found = func(*args, **(kwargs or {}))
        self._add(
            one for one in tree_leaves((args, kwargs, found)) if isinstance(one, torch.Tensor)
        )
        return found

    def _add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            address = storage._cdata
            if address not in self._alive:
                self._alive[address] = storage.nbytes()
                weakref.finalize(storage, self._alive.pop, address, None)
        self.most = max(self.most, sum(self._alive.values()))

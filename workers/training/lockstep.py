"""Forward passes of several shares side by side, which meet wherever they need each other.

A BatchNorm layer that normalises by the whole batch needs the values of all shares at once. Each
share keeps its own draws, augmentation and loss: its forward pass runs as far as the next such
layer and waits there until the others have come as far, in the order of the shares.

The passes are greenlets: they take turns in one thread. In threads of their own PyTorch would
number the nodes of the graph for each thread, so that the order of the backward pass would depend
on how long a process has lived, and cuDNN would choose its kernels anew in every thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from ...jobs.run.settings import RecipeSettings
from ..models.synced_norm import Exchange, SyncedNorm, synchronise
from .group import Group
from .passes import Passed, Shown

Result = TypeVar("Result")

DIFFERENT = (
    "sync_bn: the shares of a batch must go through the same BatchNorm layers in the same order"
)


class Lockstep:
    """Where the shares of a step meet.

    Args:
        group: of this rank.
        shares: of the whole batch, over all ranks.
    """

    def __init__(self, group: Group, shares: int) -> None:
        self._group = group
        self._shares = shares
        self._passes: _Passes[Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Lockstep":
        """Return itself: a copy of a model meets at the same place."""
        return self

    @property
    def is_on(self) -> bool:
        return self._passes is not None

    def meet(self, layer: SyncedNorm, values: Tensor) -> Tensor:
        assert self._passes is not None
        return self._passes.meet(layer, values)

    def run(
        self, passes: Sequence[Callable[[], Result]], numbers: Sequence[int | None]
    ) -> list[Result]:
        """Return what the forward passes return; every rank must call.

        Args:
            passes: of this rank's shares, on every rank as many: the graphs are alike then, and
                so is the order in which ranks exchange statistics and reduce gradients.
            numbers: which shares of the batch these are; None: a share without images, for which
                blank ones are passed. They do not enter the statistics.

        Raises:
            RuntimeError: the passes do not go through the same layers.
        """
        exchange = RowExchange(self._group, self._shares, numbers)
        self._passes = running = _Passes(passes, exchange, self._group.device)
        try:
            return running.run()
        finally:
            self._passes = None


class InLockstep(nn.Module):
    """Passes several shares through a model, in what DDP sees as one forward pass.

    Args:
        model: whose layers meet.
        lockstep: where they do.
    """

    def __init__(self, model: nn.Module, lockstep: Lockstep) -> None:
        super().__init__()
        self.model = model
        self._lockstep = lockstep

    def forward(
        self,
        shown: Sequence[Shown],
        numbers: Sequence[int | None],
        seed: Callable[[int], None],
    ) -> list[Passed]:
        """Return what the model returns for each share.

        Args:
            shown: of each share of this rank.
            numbers: see `Lockstep.run`.
            seed: makes what a share draws begin, by its place among the shares of this rank.
        """

        def one(place: int, part: Shown) -> Passed:
            seed(place)
            found: Passed = self.model(*part)
            return found

        passes = [partial(one, place, part) for place, part in enumerate(shown)]
        return self._lockstep.run(passes, numbers)


def make_lockstep(model: nn.Module, recipe: RecipeSettings, group: Group) -> Lockstep | None:
    """Have BatchNorm layers normalise by the whole batch where the recipe says so.

    Args:
        model: whose layers are replaced.
        recipe: of the run.
        group: of this rank.

    Returns:
        Where the shares of a step meet; None where no layer needs it.
    """
    if not recipe.sync_bn:
        return None
    lockstep = Lockstep(group, recipe.virtual_ranks)
    return lockstep if synchronise(model, lockstep) else None


class RowExchange:
    """Exchanges rows of numbers between all shares of all ranks.

    Args:
        group: of this rank.
        shares: of the whole batch.
        numbers: see `Lockstep.run`.
    """

    def __init__(self, group: Group, shares: int, numbers: Sequence[int | None]) -> None:
        self._group = group
        self._shares = shares
        self._numbers = numbers

    @property
    def counts(self) -> list[bool]:
        return [number is not None for number in self._numbers]

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the rows of all shares, [shares, D]; zeros for one without images."""
        every = rows.new_zeros(self._shares, rows.shape[1])
        for row, number in zip(rows, self._numbers, strict=True):
            if number is not None:
                every[number] = row
        # Only one rank adds to a row what is not zero, so the sum is exact.
        return self._group.sum_on_device(every)


@dataclass(slots=True)
class _State:
    """What PyTorch keeps for a thread, and every pass has for itself."""

    draws: Tensor
    on_gpu: Tensor | None
    """Where the GPU's generator stands."""
    has_gradients: bool
    has_autocast: bool

    @classmethod
    def now(cls, device: torch.device) -> "_State":
        on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        autocast = torch.is_autocast_enabled(device.type)
        return cls(torch.get_rng_state(), on_gpu, torch.is_grad_enabled(), autocast)

    def set(self, device: torch.device) -> None:
        torch.set_rng_state(self.draws)
        if self.on_gpu is not None:
            torch.cuda.set_rng_state(self.on_gpu, device)
        torch.set_grad_enabled(self.has_gradients)
        torch.set_autocast_enabled(device.type, self.has_autocast)


class _Passes(Generic[Result]):
    """The forward passes of one rank in one step."""

    def __init__(
        self,
        passes: Sequence[Callable[[], Result]],
        exchange: Exchange,
        device: torch.device,
    ) -> None:
        self._exchange = exchange
        self._device = device
        self._main = getcurrent()
        self._results: list[Result] = []
        self._running = [greenlet(partial(self._one, todo)) for todo in passes]
        self._states = [_State.now(device) for _ in passes]
        # What each share has come to its present layer with, and what it goes on with.
        self._given: list[tuple[SyncedNorm, Tensor]] = []
        self._outputs: list[Tensor] = []

    def run(self) -> list[Result]:
        before = _State.now(self._device)
        try:
            while not self._running[0].dead:
                self._one_round()
        finally:
            for left in self._running:
                # After an error in one of them the others still wait.
                if not left.dead:
                    left.throw()
            before.set(self._device)
        return self._results

    def meet(self, layer: SyncedNorm, values: Tensor) -> Tensor:
        """Wait until every share has got to the layer; return this one's output."""
        number = len(self._given)
        self._given.append((layer, values))
        self._main.switch()
        return self._outputs[number]

    def _one_round(self) -> None:
        """Have every pass go on to its next layer, or to its end."""
        self._given = []
        for number, running in enumerate(self._running):
            self._states[number].set(self._device)
            running.switch()
            self._states[number] = _State.now(self._device)
        layers = {id(layer) for layer, _ in self._given}
        if not self._given and all(one.dead for one in self._running):
            return
        if len(self._given) < len(self._running) or len(layers) > 1:
            raise RuntimeError(DIFFERENT)
        layer = self._given[0][0]
        self._outputs = layer.normalise_shares(
            [values for _, values in self._given], self._exchange
        )

    def _one(self, todo: Callable[[], Result]) -> None:
        self._results.append(todo())

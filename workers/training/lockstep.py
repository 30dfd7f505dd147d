"""Forward passes of several shares side by side, which meet wherever they need each other.

A BatchNorm layer that normalises by the whole batch needs the values of all shares at once. Each
share keeps its own draws, augmentation and loss: its forward pass runs in a thread of its own as
far as the next such layer, and the threads take turns, in the order of the shares. Never do two run
at a time, so what is drawn does not depend on how fast one is.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ...jobs.run.settings import RecipeSettings
from ..models.synced_norm import Exchange, SyncedNorm, synchronise
from .group import Group
from .passes import Passed, Shown

Result = TypeVar("Result")

DIFFERENT = (
    "sync_bn: the shares of a batch must go through the same BatchNorm layers in the same order"
)


class _Abandoned(Exception):
    """Another share's pass failed."""


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
            passes: of this rank's shares, at least one.
            numbers: which shares of the batch these are; None: its images do not count, of a rank
                that has none in this step.

        Raises:
            RuntimeError: the passes do not go through the same layers.
        """
        exchange = Rows(self._group, self._shares, numbers)
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
        drawing: Callable[[int | None], AbstractContextManager[None]],
    ) -> list[Passed]:
        """Return what the model returns for each share.

        Args:
            shown: of each share.
            numbers: see `Lockstep.run`.
            drawing: what a share of this number is passed forward in.
        """

        def one(part: Shown, number: int | None) -> Passed:
            with drawing(number):
                found: Passed = self.model(*part)
            return found

        passes = [partial(one, part, number) for part, number in zip(shown, numbers, strict=True)]
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


class Rows:
    """Exchanges rows of numbers between all shares of all ranks.

    Args:
        group: of this rank.
        shares: of the whole batch.
        numbers: of this rank's shares; None: its row is left out.
    """

    def __init__(self, group: Group, shares: int, numbers: Sequence[int | None]) -> None:
        self._group = group
        self._shares = shares
        self._numbers = numbers

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the rows of all shares, [shares, D]; zeros for one without images."""
        every = rows.new_zeros(self._shares, rows.shape[1])
        for row, number in zip(rows, self._numbers, strict=True):
            if number is not None:
                every[number] = row
        # Only one rank adds to a row what is not zero, so the sum is exact.
        return self._group.sum_on_device(every)


class _Passes(Generic[Result]):
    """The forward passes of one rank in one step."""

    def __init__(
        self,
        passes: Sequence[Callable[[], Result]],
        exchange: Exchange,
        device: torch.device,
    ) -> None:
        self._todo = passes
        self._exchange = exchange
        self._device = device
        self._changed = threading.Condition()
        self._turn = 0
        self._error: BaseException | None = None
        self._here = threading.local()
        self._layer: SyncedNorm | None = None
        self._given: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def run(self) -> list[Result]:
        if len(self._todo) == 1:
            self._here.number = 0
            return [self._todo[0]()]
        with ThreadPoolExecutor(len(self._todo), thread_name_prefix="share") as threads:
            found = [threads.submit(self._one, number) for number in range(len(self._todo))]
        if self._error is not None:
            raise self._error
        return [future.result() for future in found]

    def meet(self, layer: SyncedNorm, values: Tensor) -> Tensor:
        """Wait until every share has got to the layer; return this one's output."""
        number: int = self._here.number
        if number == 0:
            self._layer = layer
        if self._layer is not layer or len(self._given) != number:
            raise RuntimeError(DIFFERENT)
        self._given.append(values)
        if len(self._given) == len(self._todo):
            self._outputs = layer.together(self._given, self._exchange)
            self._given = []
        if len(self._todo) > 1:
            self._let_others_go_on(number)
        return self._outputs[number]

    def _one(self, number: int) -> Result:
        self._here.number = number
        try:
            with self._on_device():
                self._wait_for_turn(number)
                found = self._todo[number]()
                if self._given:
                    raise RuntimeError(DIFFERENT)
        except BaseException as error:
            with self._changed:
                if self._error is None and not isinstance(error, _Abandoned):
                    self._error = error
                self._changed.notify_all()
            raise
        self._pass_on(number)
        return found

    @contextlib.contextmanager
    def _on_device(self) -> Iterator[None]:
        """Have this thread work on the rank's device: each thread begins with the first one."""
        if self._device.type != "cuda":
            yield
            return
        with torch.cuda.device(self._device):
            yield

    def _let_others_go_on(self, number: int) -> None:
        """Give the turn away and wait to get it back, with the generators as they were."""
        state = self._draws()
        self._pass_on(number)
        self._wait_for_turn(number)
        self._set_draws(state)

    def _pass_on(self, number: int) -> None:
        with self._changed:
            self._turn = (number + 1) % len(self._todo)
            self._changed.notify_all()

    def _wait_for_turn(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or self._error is not None)
            if self._error is not None:
                raise _Abandoned

    def _draws(self) -> tuple[Tensor, Tensor | None]:
        """Return where torch's own generators stand, from which layers draw."""
        on_gpu = self._device.type == "cuda"
        return torch.get_rng_state(), torch.cuda.get_rng_state(self._device) if on_gpu else None

    def _set_draws(self, state: tuple[Tensor, Tensor | None]) -> None:
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1], self._device)

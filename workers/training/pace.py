"""How fast an attempt trains, and what keeps it waiting."""

import math
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

P = ParamSpec("P")
T = TypeVar("T")


# Steps that choose kernels, fill queues and compile: they say nothing of the ones that follow.
WARM_UP_STEPS = 10
# Fewer steps after them have no mean worth telling.
LEAST_STEPS = 10


class Pace:
    """How fast this attempt trains. It counts in Python alone and never waits for the device."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._parameters: int | None = None
        self._clock = clock
        self._began: float | None = None
        # Of the epoch that is being trained, or was trained last.
        self._epoch_began = self._trained_at = 0.0
        # When the step in hand began; None between epochs.
        self._step_began: float | None = None
        self._epoch_images = 0
        # Of the attempt, its steps and waiting; of the epochs before this one, their seconds.
        self._images = self._steps = 0
        self._wait_s = self._earlier_s = 0.0
        # Of the steps after the warm-up: their number, mean seconds and squared deviations; and how
        # long the device was waited for behind the last one of an epoch or before a checkpoint.
        self._timed, self._step_s, self._squares, self._settled_s = 0, 0.0, 0.0, 0.0

    def of(self, model: nn.Module) -> None:
        """Note how large the model is that is trained."""
        self._parameters = sum(weight.numel() for weight in model.parameters())

    def begin_epoch(self) -> None:
        """Note that an epoch, or what is left of it, starts."""
        self._earlier_s += self._trained_at - self._epoch_began
        self._epoch_began = self._trained_at = self._step_began = self._clock()
        if self._began is None:
            self._began = self._epoch_began
        self._epoch_images = 0

    def waiting(self, give: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `give` returns, and count the time until then as waiting."""
        asked = self._clock()
        given = give(*args, **kwargs)
        self._wait_s += self._clock() - asked
        return given

    def step(self, images: int) -> None:
        """Count a step of all ranks."""
        self._images += images
        self._epoch_images += images
        self._steps += 1
        self._trained_at = self._clock()
        if self._steps > WARM_UP_STEPS and self._step_began is not None:
            self._time(self._trained_at - self._step_began)
        self._step_began = self._trained_at

    def _time(self, seconds: float) -> None:
        """Count how long a step took, by Welford's recurrence."""
        self._timed += 1
        over = seconds - self._step_s
        self._step_s += over / self._timed
        self._squares += over * (seconds - self._step_s)

    def saved(self) -> None:
        """Note that a checkpoint was written, which is no part of the next step."""
        if self._step_began is not None:
            self._step_began = self._clock()

    def settle(self) -> None:
        """Wait for the device: what it has queued belongs to the steps so far."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        if self._step_began is not None:
            began, self._step_began = self._step_began, self._clock()
            self._settled_s += self._step_began - began if self._timed else 0.0

    def end_steps(self) -> None:
        """Note that the epoch's steps are done; what follows is its evaluation."""
        self.settle()
        self._step_began = None
        self._trained_at = self._clock()

    @property
    def images_per_s(self) -> float | None:
        """Images that all ranks trained on per second; None if this attempt did none of the epoch's
        steps.
        """
        seconds = self._trained_at - self._epoch_began
        return self._epoch_images / seconds if self._epoch_images and seconds > 0 else None

    @property
    def peak_memory_bytes(self) -> int | None:
        """The most that PyTorch had allocated on this rank's GPU so far; None on the CPU."""
        on_gpu = self._device.type == "cuda"
        return torch.cuda.max_memory_allocated(self._device) if on_gpu else None

    @property
    def usage(self) -> dict[str, float | None]:
        """What this attempt's training has used so far, as the journal's `Usage` names it."""
        seconds = self._earlier_s + self._trained_at - self._epoch_began
        known = self._images > 0 and seconds > 0
        timed = self._timed >= LEAST_STEPS
        return {
            "images_per_s": round(self._images / seconds, 1) if known else None,
            "data_wait": round(min(1.0, self._wait_s / seconds), 4) if known else None,
            "parameters": self._parameters,
            "peak_memory_bytes": self.peak_memory_bytes,
            "step_s": round(self._step_s + self._settled_s / self._timed, 6) if timed else None,
            "step_std_s": round(self._deviation_s, 6) if timed else None,
        }

    @property
    def _deviation_s(self) -> float:
        return math.sqrt(self._squares / (self._timed - 1))

    @property
    def trained_s(self) -> float | None:
        """Seconds since this attempt's first step began; None before."""
        return None if self._began is None else self._clock() - self._began

    @property
    def so_far(self) -> dict[str, Any]:
        """What the events of training say of its pace."""
        return {"trained_s": self.trained_s, "usage": self.usage}

    def left_s(self, steps: int) -> float | None:
        """Return how long `steps` further steps take, with the evaluations and checkpoints."""
        trained_s = self.trained_s
        if trained_s is None or not self._steps:
            return None
        return trained_s / self._steps * steps

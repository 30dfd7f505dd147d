"""Copies from the CPU to the device that do not hold up the training loop."""

from functools import cache

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """Return values, drawn on the CPU, on the device.

    A copy from ordinary memory waits until a GPU has done all that was asked of it before; one from
    pinned memory does not.
    """
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def bring(values: Tensor, device: torch.device) -> Tensor:
    """Return pinned values on the device, copied while it computes.

    The copy has a stream of its own: it begins at once, beside the steps that the GPU still has to
    do, and only what is asked of the GPU later waits for it.
    """
    if device.type != "cuda":
        return values.to(device)
    copying, computing = _copies(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(copying):
        found = values.to(device, non_blocking=True)
    computing.wait_stream(copying)
    # Its memory is not given to the next copy before the steps that read it are done.
    found.record_stream(computing)
    return found


@cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)

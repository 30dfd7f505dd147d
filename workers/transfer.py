"""Copies from the CPU to the device that do not hold up the training loop."""

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

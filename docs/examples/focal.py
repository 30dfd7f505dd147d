"""A loss of your own: the focal loss (Lin et al. 2017, equation 4) for several classes.

Use it with `train: {loss: "focal.py:focal"}`.
"""

from torch import Tensor


def focal(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Return a loss for each image, [B], of logits and targets, [B, classes] each."""
    logs = logits.log_softmax(1)
    return -(targets * (1 - logs.exp()) ** gamma * logs).sum(1)

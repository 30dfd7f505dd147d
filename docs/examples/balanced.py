"""A metric of your own: the mean of the classes' accuracies, percent.

Use it with `data: {metrics: ["balanced.py:balanced_accuracy"]}`.
"""

import torch
from torch import Tensor


def balanced_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return a number, the higher the better, of logits [N, classes] and labels [N]."""
    is_right = (logits.argmax(1) == labels).double()
    count = torch.bincount(labels, minlength=logits.shape[1])
    right = torch.bincount(labels, weights=is_right, minlength=logits.shape[1])
    return 100 * (right / count)[count > 0].mean()

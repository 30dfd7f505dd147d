"""How well features tell apart arbitrary halves of each class: a linear layer is fit to them.

The protocol is that of the thesis (Touvron 2022), section 2.2.1 and table 2.1. Each class that was
trained is split at random into two of equal size, and a linear layer learns the halves. Its
accuracy on the same training images says how far the images of a class are spread out.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Rows of features that pass through the layer at a time.
ROWS = 1 << 16
# Steps of the optimizer, which has long converged by then on features of a few hundred dimensions.
STEPS = 100


def separability(
    features: Tensor, trained: Tensor, logits: Tensor | None, *, splits: int
) -> dict[str, float]:
    """Return metric -> percent, over random splits: `separability` and `separability_std`.

    `separability_conditioned` and its deviation are with the coarse class given by the run's own
    classifier: the probability of a half is that of the class times that of the half within it.

    Args:
        features: [N, D] float32, of the training images.
        trained: [N] int64, their classes.
        logits: [N, classes] of the run's classifier, or None where it has none.
        splits: how many; each is drawn by its number alone, so that all runs have the same ones.
    """
    # Standardised: what a linear layer can say is the same, and it is found sooner.
    std, mean = torch.std_mean(features, dim=0)
    features = (features - mean) / std.clamp_min(1e-6)
    found: dict[str, list[float]] = {"separability": []}
    if logits is not None:
        found["separability_conditioned"] = []
    for number in range(splits):
        halves = halves_of(trained, torch.Generator().manual_seed(number))
        right = _right(fit(features, halves), features, halves, logits)
        for name, count in zip(found, right, strict=False):
            found[name].append(100 * count / len(halves))
    scores: dict[str, float] = {}
    for name, values in found.items():
        spread, centre = torch.std_mean(torch.tensor(values, dtype=torch.float64))
        scores |= {name: float(centre), f"{name}_std": float(spread)}
    return scores


def halves_of(trained: Tensor, generator: torch.Generator) -> Tensor:
    """Return a class for each image, [N] int64: twice its own, plus 0 or 1 for a random half of it.

    Args:
        trained: [N] int64 classes.
        generator: on the CPU.
    """
    classes = trained.cpu()
    drawn = torch.randperm(len(classes), generator=generator)
    # Sorted by class, in the order drawn within each.
    order = drawn[classes[drawn].argsort(stable=True)]
    starts = torch.searchsorted(classes[order].contiguous(), classes[order].contiguous())
    half = (torch.arange(len(order)) - starts) % 2
    found = torch.empty_like(classes)
    found[order] = 2 * classes[order] + half
    return found.to(trained.device)


def fit(features: Tensor, labels: Tensor) -> nn.Linear:
    """Return the linear layer of the least cross-entropy on all rows.

    Args:
        features: [N, D] float32.
        labels: [N] int64, an even number of classes.
    """
    layer = nn.Linear(features.shape[1], 2 * (int(labels.max()) // 2 + 1)).to(features.device)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=STEPS, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        whole = torch.zeros((), device=features.device)
        for rows, wanted in zip(features.split(ROWS), labels.split(ROWS), strict=True):
            loss = F.cross_entropy(layer(rows), wanted, reduction="sum") / len(labels)
            loss.backward()
            whole += loss.detach()
        return whole

    optimizer.step(closure)
    return layer


@torch.no_grad()
def _right(
    layer: nn.Linear, features: Tensor, halves: Tensor, logits: Tensor | None
) -> tuple[int, int]:
    """Return how many halves the layer tells, by itself and with the class by the classifier."""
    alone = conditioned = 0
    for start in range(0, len(halves), ROWS):
        part = slice(start, start + ROWS)
        told = layer(features[part])
        alone += int((told.argmax(1) == halves[part]).sum())
        if logits is not None:
            within = told.unflatten(1, (-1, 2)).log_softmax(2)
            classes = logits[part, : within.shape[1]].log_softmax(1)
            both = (classes[:, :, None] + within).flatten(1)
            conditioned += int((both.argmax(1) == halves[part]).sum())
    return alone, conditioned

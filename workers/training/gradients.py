"""The gradients of one optimizer step, added up over the shares of this rank."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ..data.batches import Labels, Position
from ..transfer import send
from .empty_pass import backward_nothing, blanks, count_nothing, loss_of_nothing
from .passes import Passed, Share, Shown
from .trainee import frozen_statistics

if TYPE_CHECKING:
    from .loop import Training


class Gradients(Protocol):
    """Adds the gradients of one step."""

    def add(self, shares: Sequence[Tensor]) -> None:
        """Add those of this rank's shares; every rank must call.

        An example weighs 1 / examples of the whole batch.

        Args:
            shares: the indices of the images, of each virtual rank.
        """

    def backward_nothing(self) -> None:
        """Take part in a reduction with gradients of zero; every rank must call."""


class ShareByShare:
    """One share after another, each cut as the plan says: a backward pass for each part.

    Args:
        training: of this rank.
    """

    def __init__(self, training: "Training") -> None:
        self._training = training

    def add(self, shares: Sequence[Tensor]) -> None:
        examples = sum(len(share) for share in shares)
        mine = self._training.virtual_ranks
        for virtual_rank in mine:
            self._add(shares[virtual_rank], virtual_rank, examples, virtual_rank == mine[-1])

    def backward_nothing(self) -> None:
        model = self._training.model
        backward_nothing(self._training, lambda shown: model(*shown))

    def _add(self, indices: Tensor, virtual_rank: int, examples: int, last: bool) -> None:
        training = self._training
        share = share_of(training, indices, virtual_rank)
        if share is None:
            if last and training.group.world_size > 1:
                self.backward_nothing()
            return
        with frozen_statistics(training.statistics, virtual_rank != 0):
            parts = share.cut(training.plan.micro_split)
            draws = draws_of(training, [len(part.targets) for part in parts], virtual_rank)
            for number, part in enumerate(parts):
                with self._sync(last and number == len(parts) - 1):
                    seed(training, virtual_rank, number)
                    with training.numerics.autocast():
                        passed = training.forward(*part.shown(draws[number]))
                    backward(training, loss_of(training, part, passed), examples)
                    count(training, part, passed)

    def _sync(self, last: bool) -> Any:
        """Reduce gradients once, with the last share's backward pass."""
        if last or self._training.group.world_size == 1:
            return contextlib.nullcontext()
        return self._training.model.no_sync()


class SideBySide:
    """All shares at once, which meet at layers that normalise by the whole batch.

    Args:
        training: of this rank; its model is an `InLockstep`.
    """

    def __init__(self, training: "Training") -> None:
        self._training = training

    def add(self, shares: Sequence[Tensor]) -> None:
        training = self._training
        assert training.plan.micro_split == 1, "submission refuses halve_micro_batch"
        mine = [share_of(training, shares[number], number) for number in training.virtual_ranks]
        numbers = [
            number if share is not None else None
            for number, share in zip(training.virtual_ranks, mine, strict=True)
        ]
        shown = [
            blanks(training)
            if share is None
            else share.shown(draws_of(training, [len(share.targets)], number)[0])
            for number, share in zip(training.virtual_ranks, mine, strict=True)
        ]
        passed = self._pass(shown, numbers)
        losses = [
            loss_of_nothing(one) if share is None else loss_of(training, share, one)
            for share, one in zip(mine, passed, strict=True)
        ]
        backward(training, torch.stack(losses).sum(), sum(len(share) for share in shares))
        for share, one in zip(mine, passed, strict=True):
            if share is None:
                count_nothing(training, one)
            else:
                count(training, share, one)

    def backward_nothing(self) -> None:
        training = self._training
        shown = [blanks(training) for _ in training.virtual_ranks]
        with frozen_statistics(training.statistics, True):
            passed = self._pass(shown, training.virtual_ranks)
        torch.stack([loss_of_nothing(one) for one in passed]).sum().backward()
        for one in passed:
            count_nothing(training, one)

    def _pass(self, shown: Sequence[Shown], numbers: Sequence[int | None]) -> list[Passed]:
        training = self._training
        # Shares that had one half-precision copy of a weight would add up its gradients in it.
        with training.numerics.autocast(cache=False):
            found: list[Passed] = training.forward(
                shown, numbers, lambda place: seed(training, training.virtual_ranks[place], 0)
            )
        return found


def share_of(training: "Training", indices: Tensor, virtual_rank: int) -> Share | None:
    """Return what a virtual rank trains on in this step; None where it has no image.

    Args:
        training: of this rank.
        indices: of the images.
        virtual_rank: one of this rank's.
    """
    where = (training.epoch, training.step, virtual_rank)
    position = Position(epoch=training.epoch, step=training.step, virtual_rank=virtual_rank)
    images, labels = training.pace.waiting(training.source.batch, indices, position)
    if not len(labels):
        return None
    wants_labels = training.trainee.wants_labels
    targets: Labels = labels
    if training.mixup is not None and isinstance(labels, Tensor):
        training.streams.seed_numpy("mix", "mixup", *where)
        images, targets = training.mixup(images, labels)
    places = None
    if training.patches is not None:
        images, places = training.patches.train(
            images, training.streams.generator("augment", "patches", *where)
        )
    if training.recipe.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return Share(
        images,
        targets,
        places,
        labels=labels if wants_labels else None,
        indices=send(indices, images.device) if wants_labels else None,
    )


def draws_of(training: "Training", sizes: Sequence[int], virtual_rank: int) -> list[Any]:
    """Return what the head draws for each part of a share.

    Args:
        training: of this rank.
        sizes: images of each part.
        virtual_rank: whose share it is.
    """
    where = (training.epoch, training.step, virtual_rank)
    return training.trainee.draw_parts(
        sizes, lambda part: training.streams.generator("pair", "head", *where, part)
    )


def seed(training: "Training", virtual_rank: int, part: int) -> None:
    """Have dropout and drop path draw what is this part of a share's own."""
    where = (training.epoch, training.step, virtual_rank, part)
    training.streams.seed_torch("drop", "backbone", *where)


def loss_of(training: "Training", part: Share, passed: Passed) -> Tensor:
    """Return the loss of a part, summed over its images, and note what it consists of."""
    # As the task has them: classes, masks or a detector's losses.
    logits: Any = passed.logits
    total, parts = training.objective(
        part.images, logits, part.targets, passed.loss, training.head_weight
    )
    training.after_step.add(passed.kept)
    for name, value in parts.items():
        training.sums.add(name, value)
    training.sums.add("loss", total.detach())
    return total


def backward(training: "Training", loss: Tensor, examples: int) -> None:
    """Add the gradients of a loss; it is a sum over images, of `examples` in the whole batch."""
    # DDP averages over ranks; the factor turns that into the sum over all examples.
    factor = training.group.world_size / examples
    training.numerics.scaler.scale(loss * factor).backward()


def count(training: "Training", part: Share, passed: Passed) -> None:
    """Note how many images a part had, and what the head measured on them."""
    size = len(part.targets)
    # Made on the device: a copy to it would wait for the backward pass.
    training.sums.add("examples", torch.full((), float(size), device=training.group.device))
    training.sums.add_of_head(training.spec.head.name, passed.metrics, size)

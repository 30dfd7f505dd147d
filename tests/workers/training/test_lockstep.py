"""The forward passes of several shares take turns, and meet at each layer that needs them all."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from vtjobs.workers.models.synced_norm import SyncedNorm, synchronise
from vtjobs.workers.training.group import Group
from vtjobs.workers.training.lockstep import Lockstep
from vtjobs.workers.training.trainee import Trainee, layers_with_statistics

ALONE = Group(rank=0, world_size=1, device=torch.device("cpu"))


def test_each_share_draws_its_own_dropout_whatever_runs_between() -> None:
    found = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Dropout(0.5))
    lockstep = Lockstep(ALONE, 2)
    synchronise(found, lockstep)
    shares = list(torch.randn(6, 8).split(3))
    drawn: dict[tuple[int, ...], list[Tensor]] = {}

    def one(number: int, among: tuple[int, ...]) -> Tensor:
        torch.manual_seed(number)
        found[0](shares[number])
        out = found(shares[number])
        drawn.setdefault(among, []).append(torch.rand(3))
        return out

    lockstep.run([partial(one, 0, (0, 1)), partial(one, 1, (0, 1))], [0, 1])
    for number in (0, 1):
        lockstep.run([partial(one, number, (number,))], [number])
        assert torch.equal(drawn[0, 1][number], drawn[number,][0])


def test_the_layers_of_a_labs_own_head_follow_the_whole_batch_as_well() -> None:
    head = nn.Sequential(nn.BatchNorm1d(3))
    trainee = Trainee(nn.Linear(3, 3), head, None)
    assert layers_with_statistics(trainee) == [], "its statistics are those of every share"
    synchronise(trainee, Lockstep(ALONE, 2))
    assert layers_with_statistics(trainee) == [head[0]]


@pytest.mark.parametrize("has_gradients", [True, False])
def test_a_share_that_waits_without_gradients_leaves_those_of_the_next_alone(
    has_gradients: bool,
) -> None:
    lockstep = Lockstep(ALONE, 2)
    layer = SyncedNorm(nn.BatchNorm1d(3), lockstep)
    before, after = nn.Linear(3, 3), nn.Linear(3, 3)

    def one(values: Tensor) -> Tensor:
        given = before(values)
        with torch.set_grad_enabled(has_gradients):
            target = layer(given)
        return after(given + target)

    outputs = lockstep.run([partial(one, torch.randn(4, 3)) for _ in range(2)], [0, 1])
    torch.stack([output.sum() for output in outputs]).sum().backward()
    assert before.weight.grad is not None and after.weight.grad is not None
    assert (layer.weight.grad is not None) == has_gradients


def test_an_error_in_one_share_ends_the_others() -> None:
    found = nn.BatchNorm1d(3)
    lockstep = Lockstep(ALONE, 3)
    layer = SyncedNorm(found, lockstep)

    def broken() -> Tensor:
        raise ValueError("no image")

    fine: Callable[[], Tensor] = partial(layer, torch.randn(2, 3))
    for todo in ([fine, broken, fine], [broken, fine, fine], [fine, fine, broken]):
        with pytest.raises(ValueError, match="no image"):
            lockstep.run(todo, [0, 1, 2])
        assert not lockstep.is_on


@pytest.mark.parametrize("turns", [(1, 2), (2, 1), (0, 1), (1, 0)])
def test_shares_that_go_through_other_layers_are_refused(turns: tuple[int, int]) -> None:
    lockstep = Lockstep(ALONE, 2)
    layer = SyncedNorm(nn.BatchNorm1d(3), lockstep)

    def some(times: int) -> Tensor:
        values = torch.randn(2, 3)
        for _ in range(times):
            values = layer(values)
        return values

    with pytest.raises(RuntimeError, match="sync_bn"):
        lockstep.run([partial(some, times) for times in turns], [0, 1])

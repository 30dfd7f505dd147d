"""BatchNorm over the whole batch does what BatchNorm does with all images at once."""

import copy
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from vtjobs.workers.models.synced_norm import SyncedNorm, synchronise
from vtjobs.workers.training.group import Group
from vtjobs.workers.training.lockstep import Lockstep

ALONE = Group(rank=0, world_size=1, device=torch.device("cpu"))
SIZES = [3, 1, 4]


def model(momentum: float | None = 0.1, affine: bool = True) -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        nn.BatchNorm2d(5, momentum=momentum, affine=affine),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum, affine=affine),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 6),
        nn.BatchNorm1d(6, momentum=momentum, affine=affine),
    )
    for layer in found:
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and affine:
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return found


def images(sizes: Sequence[int] = SIZES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 3, 6, 6, generator=generator) for size in sizes]


def passes(found: nn.Module, lockstep: Lockstep, shares: Sequence[Tensor]) -> list[Tensor]:
    todo = [partial(found, share) for share in shares]
    return lockstep.run(todo, list(range(len(shares))))


def gradients(found: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad for name, value in found.named_parameters() if value.grad is not None}


@pytest.mark.paper("PC-05")
@pytest.mark.parametrize(("momentum", "affine"), [(0.1, True), (None, True), (0.3, False)])
def test_shares_are_normalised_as_one_batch(momentum: float | None, affine: bool) -> None:
    whole = model(momentum, affine)
    cut = copy.deepcopy(whole)
    lockstep = Lockstep(ALONE, len(SIZES))
    assert synchronise(cut, lockstep)
    for step in range(2):
        shares = [share + step for share in images()]
        target = torch.linspace(-1, 1, 6)
        expected = whole(torch.cat(shares))
        (expected * target).square().sum().backward()
        outputs = passes(cut, lockstep, shares)
        torch.stack([(part * target).square().sum() for part in outputs]).sum().backward()
        torch.testing.assert_close(torch.cat(outputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(cut), gradients(whole), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(cut.state_dict(), whole.state_dict(), rtol=1e-5, atol=1e-6)


def test_the_gradient_is_that_of_the_formula() -> None:
    lockstep = Lockstep(ALONE, 2)
    layer = SyncedNorm(nn.BatchNorm1d(3).double(), lockstep)
    shares = [share.double() for share in torch.randn(7, 3).split([4, 3])]

    def outputs(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(lockstep.run([partial(layer, share) for share in given], [0, 1]))

    # What is summed over a share is in float32.
    inputs = [share.requires_grad_() for share in shares]
    assert torch.autograd.gradcheck(outputs, inputs, eps=1e-2, atol=1e-2, rtol=1e-2)


def test_in_evaluation_and_outside_a_step_it_is_an_ordinary_layer() -> None:
    whole = model()
    cut = copy.deepcopy(whole)
    synchronise(cut, Lockstep(ALONE, 2))
    for mode in (True, False):
        for found in (whole, cut):
            found.train(mode)
        assert torch.equal(cut(images()[0]), whole(images()[0]))
    assert cut.state_dict().keys() == whole.state_dict().keys()
    torch.testing.assert_close(cut.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_a_copy_meets_where_its_model_does() -> None:
    lockstep = Lockstep(ALONE, 2)
    found = model()
    synchronise(found, lockstep)
    shares = images([2, 3])
    expected = passes(found, lockstep, shares)
    again = passes(copy.deepcopy(found), lockstep, shares)
    assert all(torch.equal(*pair) for pair in zip(expected, again, strict=True))


def test_layers_with_an_activation_of_their_own_keep_it() -> None:
    from timm.layers import BatchNormAct2d

    whole = nn.Sequential(BatchNormAct2d(3, act_layer=nn.SiLU))
    cut = copy.deepcopy(whole)
    lockstep = Lockstep(ALONE, 2)
    synchronise(cut, lockstep)
    shares = images([2, 3])
    torch.testing.assert_close(
        torch.cat(passes(cut, lockstep, shares)), whole(torch.cat(shares)), rtol=1e-4, atol=1e-5
    )


def test_a_share_that_does_not_count_changes_nothing() -> None:
    found = model()
    other = copy.deepcopy(found)
    lockstep = Lockstep(ALONE, 3)
    synchronise(found, lockstep)
    synchronise(other, lockstep)
    shares = images([2, 3, 4])
    alone = lockstep.run([partial(found, share) for share in shares[:2]], [0, 2])
    beside = lockstep.run([partial(other, share) for share in shares], [0, 2, None])
    torch.testing.assert_close(beside[:2], alone, rtol=0, atol=0)
    torch.stack([part.square().sum() for part in alone]).sum().backward()
    losses = [part.square().sum() for part in beside[:2]]
    torch.stack([*losses, beside[2].sum() * 0.0]).sum().backward()
    torch.testing.assert_close(gradients(other), gradients(found), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.state_dict(), found.state_dict(), rtol=0, atol=0)

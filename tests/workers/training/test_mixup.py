"""timm's Mixup and CutMix, with draws of their own for each share."""

import numpy
import pytest
import torch
from timm.data.mixup import Mixup

from vtjobs.jobs.values import changed
from vtjobs.workers.training.mixup import make_mixup

from ...support.training import run_spec

RECIPE = run_spec(
    mixup=0.8, cutmix=1.0, mix_prob=1.0, mix_switch_prob=0.5, label_smoothing=0.1
).recipe


def _batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 3, 8, 8, generator=generator), torch.randint(
        0, 10, (count,), generator=generator
    )


@pytest.mark.paper("DE-05")
@pytest.mark.parametrize("seed", range(6))
def test_an_even_share_is_mixed_just_as_timm_mixes_it(seed: int) -> None:
    theirs = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=10)
    found = []
    for mix in (make_mixup(RECIPE, 10), theirs):
        numpy.random.seed(seed)
        images, labels = _batch(6)
        found.append(mix(images, labels))
    for mine, expected in zip(*found, strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_an_odd_share_mixes_its_middle_image_with_itself(count: int, seed: int) -> None:
    numpy.random.seed(seed)
    images, labels = _batch(count)
    mixed, targets = make_mixup(RECIPE, 10)(images.clone(), labels)
    middle = count // 2
    torch.testing.assert_close(mixed[middle], images[middle])
    assert int(targets[middle].argmax()) == int(labels[middle])
    torch.testing.assert_close(targets.sum(1), torch.ones(count))


def test_nothing_is_mixed_where_the_recipe_names_neither() -> None:
    assert make_mixup(changed(RECIPE, mixup=0.0, cutmix=0.0), 10) is None


def test_cutmix_alone_cuts_and_mixup_alone_blends() -> None:
    numpy.random.seed(0)
    images, labels = _batch(8)
    cut, _ = make_mixup(changed(RECIPE, mixup=0.0), 10)(images.clone(), labels)
    assert bool(((cut == images) | (cut == images.flip(0))).all()) and not torch.equal(cut, images)
    numpy.random.seed(0)
    blend, targets = make_mixup(changed(RECIPE, cutmix=0.0, label_smoothing=0.0), 10)(
        images.clone(), labels
    )
    share = float(targets[0, labels[0]]) if labels[0] != labels[-1] else 1.0
    torch.testing.assert_close(blend[0], share * images[0] + (1 - share) * images[-1])

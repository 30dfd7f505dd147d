"""What is done to patches, for whole batches: against a plain reading, patch by patch."""

import colorsys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from vtjobs.jobs.values import changed
from vtjobs.workers.data.patches import (  # fmt: skip
    PatchWork,
    as_images,
    as_patches,
    augment_patches,
    mega_patches,
    patch_work,
    shuffle_patches,
    turn_hue,
)

from ...support.training import CPU, head_settings, run_spec


def _images(batch: int, channels: int, side: int, seed: int = 0) -> Tensor:
    return torch.rand(batch, channels, side, side, generator=torch.Generator().manual_seed(seed))


def _draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_patches_stand_row_by_row_and_go_back_together() -> None:
    images = _images(2, 3, 12)
    patches = as_patches(images, 4)
    assert patches.shape == (18, 3, 4, 4)
    assert torch.equal(patches[0], images[0, :, :4, :4])
    assert torch.equal(patches[1], images[0, :, :4, 4:8]), "the next one is to the right"
    assert torch.equal(patches[9], images[1, :, :4, :4])
    assert torch.equal(as_images(patches, 2, 3), images)


@pytest.mark.paper("RV-10")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 5))
def test_shuffled_patches_are_the_same_ones_and_it_is_told_where_each_was(
    seed: int, rows: int
) -> None:
    images = _images(3, 1, 4 * rows, seed)
    moved, places = shuffle_patches(images, 4, _draws(seed))
    before, after = (as_patches(each, 4).unflatten(0, (3, -1)) for each in (images, moved))
    assert torch.equal(places.sort(1).values, torch.arange(rows * rows).expand(3, -1))
    for image in range(3):
        assert torch.equal(after[image], before[image][places[image]])


def test_images_are_shuffled_each_by_itself() -> None:
    _, places = shuffle_patches(_images(8, 1, 16), 4, _draws())
    assert len({tuple(row) for row in places.tolist()}) == 8


@pytest.mark.paper("RV-08")
@pytest.mark.parametrize("shared", [True, False])
def test_mega_patches_are_rectangles_between_cuts_at_multiples_of_a_patch(shared: bool) -> None:
    """A picture that is constant in each patch, and tells which it is, shows where the cuts went."""
    patch, count, patches = 4, 3, 6
    rows = torch.arange(patches).repeat_interleave(patch).float()
    images = torch.stack([rows[:, None].expand(24, 24), rows[None].expand(24, 24)])[None].expand(
        50, -1, -1, -1
    )
    mega = mega_patches(images, patch, count, _draws(), shared=shared)
    assert mega.shape == (50, 2, 12, 12)
    spans = [
        as_patches(mega[:, axis : axis + 1], patch).view(50, count, count, -1) for axis in (0, 1)
    ]
    tall, wide = spans[0][:, :, 0], spans[1][:, 0, :]
    for each in (tall, wide):
        # Each stretch begins in its first patch and ends in its last: together they are all patches
        # once.
        low, high = each.amin(-1).round(), each.amax(-1).round()
        assert bool((low[:, 0] == 0).all()) and bool((high[:, -1] == patches - 1).all())
        assert torch.equal(low[:, 1:], high[:, :-1] + 1)
    assert torch.equal(tall.amin(-1).round(), wide.amin(-1).round()) is shared
    assert len({tuple(row) for row in tall.amin(-1).round().tolist()}) > 3, (
        "cuts differ between images"
    )


def test_as_many_mega_patches_as_patches_are_the_image() -> None:
    images = _images(2, 3, 16)
    assert torch.allclose(mega_patches(images, 4, 4, _draws(), shared=False), images, atol=1e-5)


def test_a_mega_patch_is_resized_with_antialiased_bilinear_weights() -> None:
    images = _images(1, 1, 16)
    mega = mega_patches(images, 8, 2, _draws(), shared=True)
    # Two cuts at 8: nothing is left to be drawn.
    assert torch.allclose(mega, images, atol=1e-5)
    whole = mega_patches(images, 4, 2, _draws(3), shared=True)
    rows = torch.rand(1, 3, generator=_draws(3)).argsort(1)[0, 0].item() + 1
    first = images[:, :, : 4 * int(rows), : 4 * int(rows)]
    expected = F.interpolate(
        first, size=(4, 4), mode="bilinear", antialias=True, align_corners=False
    )
    assert torch.allclose(whole[:, :, :4, :4], expected, atol=1e-4)


@settings(max_examples=50, deadline=None)
@given(colour=st.tuples(*[st.floats(0, 1, width=32)] * 3), shift=st.floats(-0.5, 0.5, width=32))
def test_turning_the_hue_is_what_pythons_own_conversion_says(
    colour: tuple[float, ...], shift: float
) -> None:
    hue, saturation, value = colorsys.rgb_to_hsv(*colour)
    expected = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
    found = turn_hue(
        torch.tensor(colour).double().view(1, 3, 1, 1),
        torch.tensor(shift).double().view(1, 1, 1, 1),
    )
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.paper("RV-11")
def test_patches_are_augmented_each_by_itself() -> None:
    one = _images(1, 3, 8)
    images = one.repeat(1, 1, 4, 4)
    patches = as_patches(augment_patches(images, 8, _draws()), 8)
    assert len({tuple(patch.flatten().tolist()) for patch in patches}) == 16
    assert float(patches.min()) >= 0 and float(patches.max()) <= 1


@pytest.mark.paper("RV-11")
def test_a_fifth_of_the_patches_become_grey_and_a_fifth_keep_their_colours() -> None:
    images = torch.rand(40, 3, 1, 1, generator=_draws(1)).repeat(1, 1, 32, 32)
    before, after = as_patches(images, 4), as_patches(augment_patches(images, 4, _draws()), 4)
    grey = ((after[:, 0] - after[:, 1]).abs().amax((1, 2)) < 1e-5) & (
        (after[:, 1] - after[:, 2]).abs().amax((1, 2)) < 1e-5
    )
    same = (after - before).abs().amax((1, 2, 3)) < 1e-6
    # 2,560 draws each: four standard deviations are 0.032.
    assert float(grey.float().mean()) == pytest.approx(0.2, abs=0.032)
    assert float(same.float().mean()) == pytest.approx(0.2 * 0.8, abs=0.032)


@pytest.mark.paper("RV-11")
def test_each_patch_is_a_crop_of_it_at_a_random_place_resized_back() -> None:
    """A 16-pixel patch keeps round(16 / 1.15) = 14 pixels a side, so there are nine places."""
    images = _images(60, 1, 64)
    before, after = as_patches(images, 16), as_patches(augment_patches(images, 16, _draws()), 16)
    places = [(top, left) for top in range(3) for left in range(3)]
    crops = [before[:, :, top : top + 14, left : left + 14] for top, left in places]
    resized = torch.stack([F.interpolate(crop, size=16, mode="bilinear") for crop in crops])
    matches = (resized - after).abs().amax((2, 3, 4)) < 1e-6
    # One patch in five keeps its colours: those show where their crop was.
    kept = matches.any(0)
    assert float(kept.float().mean()) == pytest.approx(0.2, abs=0.06)
    assert bool(matches[:, kept].any(1).all()) and int(matches.sum(0).max()) == 1


@pytest.mark.paper("RV-11")
def test_colours_change_by_as_much_as_torchvisions_jitter_of_the_published_code() -> None:
    """Brightness, contrast and saturation by 0.6 to 1.4, the hue by a tenth of the circle."""
    # Dark and pale enough that no change is clamped.
    colour = torch.tensor([0.42, 0.40, 0.36]).view(1, 3, 1, 1)
    patches = as_patches(augment_patches(colour.repeat(50, 1, 64, 64), 8, _draws()), 8)
    found = [colorsys.rgb_to_hsv(*patch[:, 0, 0].tolist()) for patch in patches]
    hue, saturation, value = colorsys.rgb_to_hsv(*colour.flatten().tolist())
    # A grey patch has no hue.
    coloured = [one for one in found if one[1] > 1e-3]
    turned = [(one[0] - hue + 0.5) % 1 - 0.5 for one in coloured]
    assert -0.1 - 1e-4 < min(turned) < -0.09 and 0.09 < max(turned) < 0.1 + 1e-4
    # Saturation moves the largest channel a little as well.
    brightness = [one[2] / value for one in found]
    assert 0.55 < min(brightness) < 0.65 and 1.35 < max(brightness) < 1.45
    # On a single colour contrast does what saturation does.
    share = [one[1] / saturation for one in coloured]
    assert 0.6**2 - 0.03 < min(share) < 0.5 and 1.7 < max(share) < 1.4**2 + 0.03


def test_one_channel_images_are_augmented_as_well() -> None:
    changed = augment_patches(_images(2, 1, 16), 4, _draws())
    assert changed.shape == (2, 1, 16, 16) and bool(torch.isfinite(changed).all())


def test_normalised_colours_are_clamped_as_in_the_code_only_where_asked_for() -> None:
    images = _images(4, 3, 16) * 4 - 2
    found = {}
    for fidelity in ("paper", "code"):
        work = _work(fidelity, patch_augment=True)
        found[fidelity], places = work.train(images, _draws())
        assert places is None
    share = {
        name: float((as_patches(images, 4).amin((1, 2, 3)) >= 0).float().mean())
        for name, images in found.items()
    }
    # The published code takes every negative value from the four patches in five whose colours it
    # changes.
    assert share["code"] == pytest.approx(0.8, abs=0.2)
    assert share["paper"] < 0.3


def test_scores_are_of_mega_patches_too_but_of_nothing_else() -> None:
    images = _images(2, 3, 16)
    work = _work("paper", mega=2, patch_augment=True, shuffle=True)
    scored = work.evaluate(images, _draws())
    assert torch.equal(scored, mega_patches(images, 4, 2, _draws(), shared=False))
    assert torch.equal(_work("paper", shuffle=True).evaluate(images, _draws()), images)


def test_heads_that_ask_for_nothing_get_nothing() -> None:
    data = changed(run_spec().dataset, mean=[0.5] * 3, std=[0.2] * 3)
    assert patch_work(head_settings("relvit"), data, None, CPU) is None
    assert patch_work(head_settings("drloc"), data, 4, CPU) is None


def _work(fidelity: str, **params: object) -> PatchWork:
    data = changed(run_spec().dataset, mean=[0.5] * 3, std=[0.25] * 3)
    found = patch_work(head_settings("relvit", fidelity, **params), data, 4, CPU)
    assert found is not None
    return found

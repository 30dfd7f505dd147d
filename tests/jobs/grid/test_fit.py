"""Recipes that cannot show what a dataset of a lab's own has."""

from typing import Any

import pytest

from vtjobs.jobs.grid.entries import Entry
from vtjobs.jobs.grid.fit import misfits
from vtjobs.jobs.values import changed

from ...support.training import run_spec


def said(channels: int, **recipe: Any) -> list[str]:
    spec = run_spec(**recipe)
    cell = changed(spec, dataset=changed(spec.dataset, channels=channels))
    head = Entry(name="supervised", settings=cell.head, path=("heads", 0), label="supervised")
    return [f"{found.message}. {found.fix}" for found in misfits(cell, head)]


@pytest.mark.parametrize("pipeline", ["pil", "hybrid"])
def test_pillow_cannot_show_four_channels(pipeline: str) -> None:
    assert said(4, pipeline=pipeline, crop_padding=0, crop="resized") == [
        f"pipeline: {pipeline} cannot show the 4 channels of digits. Set train: {{pipeline: tensor}}"
    ]


def test_tensors_may_have_any_channels_but_not_be_recoloured() -> None:
    assert said(4, pipeline="tensor") == []
    assert said(4, pipeline="tensor", color_jitter=0.4) == [
        "auto_augment and color_jitter know images of 1 or 3 channels; digits has 4. Set train:"
        " {auto_augment: null, color_jitter: 0}"
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_coloured_images_go_with_every_pipeline(channels: int) -> None:
    for pipeline in ("pil", "hybrid"):
        assert said(channels, pipeline=pipeline, crop_padding=0, crop="resized") == []
    assert said(channels, pipeline="tensor", color_jitter=0.4) == []

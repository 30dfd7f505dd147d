"""Figures of maps: a square for each, and their numbers beside them."""

import base64
import csv
import io

import pytest

from vtjobs.analysis.output.figures.maps import MOST_ACROSS, maps
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.pictures import BlockDepth, FeatureSpace, LayerSparsity, Panel, Pictures, Shown
from vtjobs.jobs.values import changed

# A PNG of one grey pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def panel(title: str, **more: float | bool) -> Panel:
    return Panel(title=title, values=[[0.0, 0.25], [0.5, 1.0]], **more)  # type: ignore[arg-type]


def of_images(count: int) -> Pictures:
    panels = [panel(f"head {number}") for number in range(1, count + 1)]
    shown = [Shown(title=f"image {place}", panels=panels, image=PIXEL) for place in (4, 9)]
    return Pictures(run_id="r", kind="attention", text="What they show.", shown=shown)


@pytest.mark.paper("CA-17", "PC-15")
def test_each_image_has_its_maps_beside_it() -> None:
    (drawn,) = maps(of_images(2))
    assert [axes.get_title(loc="left") for axes in drawn.figure.axes] == [
        *("image 4", "head 1", "head 2", "image 9", "head 1", "head 2")
    ]
    tops = [round(axes.get_position().y0, 2) for axes in drawn.figure.axes]
    assert len(set(tops[:3])) == len(set(tops[3:])) == 1 and tops[0] > tops[3]


def test_more_maps_than_go_side_by_side_take_further_lines() -> None:
    (drawn,) = maps(of_images(MOST_ACROSS + 1))
    left = [round(axes.get_position().x0, 2) for axes in drawn.figure.axes]
    assert len(left) == 2 * (MOST_ACROSS + 2) and len(set(left)) == MOST_ACROSS


def test_every_number_is_in_the_data() -> None:
    (drawn,) = maps(of_images(2))
    rows = list(csv.DictReader(io.StringIO(drawn.csv())))
    assert len(rows) == 2 * 2 * 4
    assert rows[-1] == {
        "shown": "image 9", "map": "head 2", "row": "2", "column": "2", "value": "1.0",
    }  # fmt: skip


def test_the_same_maps_give_the_same_figure_byte_for_byte() -> None:
    assert maps(of_images(3))[0].svg == maps(of_images(3))[0].svg


def test_the_patch_of_reference_is_marked_on_image_and_maps() -> None:
    shown = Shown(title="image 1", panels=[panel("x")], image=PIXEL, patch=(0.5, 0, 0.5, 0.5))
    (drawn,) = maps(Pictures(run_id="r", kind="relations", text="t", shown=[shown]))
    assert [axes.patches[0].get_bbox().bounds for axes in drawn.figure.axes] == [
        (0.5, 0, 0.5, 0.5)
    ] * 2


@pytest.mark.paper("RM-08")
@pytest.mark.parametrize(("low", "colours"), [(-1.0, "RdBu_r"), (0.0, "viridis")])
def test_numbers_on_both_sides_of_zero_have_two_colours(low: float, colours: str) -> None:
    shown = Shown(title="block 1", panels=[panel("x", low=low, high=1.0)])
    (drawn,) = maps(Pictures(run_id="r", kind="filters", text="t", shown=[shown]))
    (axes,) = drawn.figure.axes
    assert axes.get_title(loc="left") == "block 1: x"
    assert axes.images[0].get_cmap().name == colours


@pytest.mark.paper("RM-07")
def test_sparsity_is_a_figure_of_its_own() -> None:
    layers = [
        LayerSparsity(layer=f"blocks.{block}.{kind}", kind=kind, block=block + 1, sparsity=10.0)
        for kind in ("patches", "mlp.fc1")
        for block in (0, 1)
    ]
    shown = [Shown(title="block 1", panels=[panel("x")])]
    found = Pictures(run_id="r", kind="filters", text="t", shown=shown, layers=layers)
    _, drawn = maps(found)
    (axes,) = drawn.figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["patches", "mlp.fc1"]
    assert drawn.rows[0] == ["blocks.0.patches", "patches", 1, 10.0]


def test_what_blocks_add_and_how_alike_tokens_become_are_two_figures() -> None:
    blocks = [
        BlockDepth(block=0, similarity=0.06),
        BlockDepth(block=1, mixing=0.5, mlp=0.25, similarity=0.3),
        BlockDepth(block=2, mixing=0.4, mlp=0.2, similarity=0.93),
    ]
    found = Pictures(run_id="r", kind="depth", text="What is added.", shown=[], blocks=blocks)
    added, similar = maps(found)
    assert added.rows == [[1, 0.5, 0.25], [2, 0.4, 0.2]]
    assert similar.rows == [[0, 0.06], [1, 0.3], [2, 0.93]]
    plain = [changed(one, similarity=None) for one in blocks[1:]]
    assert [one.name for one in maps(changed(found, blocks=plain))] == ["depth"]


@pytest.mark.paper("GR-11")
def test_features_are_points_coloured_by_class() -> None:
    space = FeatureSpace(
        places=[4, 5, 6],
        labels=[1, 0, 1],
        x=[0.0, 1.0, 2.0],
        y=[3.0, 4.0, 5.0],
        perplexity=2 / 3,
        energy=[80.0, 100.0],
    )
    points, energy = maps(
        Pictures(run_id="r", kind="features", text="Points.", shown=[], space=space)
    )
    (axes,) = points.figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["class 0", "class 1"]
    assert [len(part.get_offsets()) for part in axes.collections] == [1, 2]
    assert points.rows[0] == [4, 1, 0.0, 3.0]
    assert (points.name, energy.name) == ("features", "principal-components")
    assert energy.rows == [[1, 80.0], [2, 100.0]]


@pytest.mark.parametrize(("across", "images"), [(MOST_ACROSS, 60), (2, 55)])
def test_more_maps_than_a_page_holds_are_refused(across: int, images: int) -> None:
    panels = [panel(str(number)) for number in range(across)]
    shown = [Shown(title=str(place), panels=panels, image=PIXEL) for place in range(images)]
    with pytest.raises(BadInput, match=f"{images * (across + 1)} maps do not fit into a figure"):
        maps(Pictures(run_id="r", kind="attention", text="t", shown=shown))

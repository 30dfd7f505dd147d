"""The training images that are nearest to an image."""

from pathlib import Path
from typing import Any

import pytest
import torch

from vtjobs.analysis.output.figures.maps import maps
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.pictures import Pictures
from vtjobs.workers.data.datasets import load_part
from vtjobs.workers.randomness import Streams
from vtjobs.workers.tools.asked import Asked
from vtjobs.workers.tools.nearest import NEAREST
from vtjobs.workers.tools.visualize import pictures

from ...support.training import CONVNET, run_spec
from .test_score import complete
from .test_visualize import Finished


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    root = tmp_path_factory.mktemp("nearest")
    workspace, spec, _ = complete(root, run_spec(CONVNET, epochs=2))
    return workspace, spec


def found_in(finished: Finished, **asked: Any) -> Pictures:
    workspace, spec = finished
    return pictures(
        workspace,
        spec.run_id,
        Asked(kind="neighbours", **asked),
        data_root=workspace.root.parent,
        paths={},
    )


def test_neighbours_share_a_class_more_often_than_strangers(finished: Finished) -> None:
    queries = found_in(finished, images=list(range(40))).queries
    same = [one.label == near.label for one in queries for near in one.neighbours]
    assert len(same) == 40 * NEAREST
    # Of ten classes, a tenth would be luck.
    assert sum(same) > 0.2 * len(same)


def test_the_nearest_come_first_and_have_their_own_class(finished: Finished) -> None:
    (one,) = found_in(finished, images=[3]).queries
    _, spec = finished
    train = load_part(spec.dataset, "train", Streams(spec.seeds), data_root=Path(), paths={})
    cosines = [near.cosine for near in one.neighbours]
    assert cosines == sorted(cosines, reverse=True) and cosines[0] <= 1 + 1e-5
    assert [near.label for near in one.neighbours] == train.labels[
        torch.tensor([near.place for near in one.neighbours])
    ].tolist()


def test_a_training_image_is_no_neighbour_of_itself(finished: Finished) -> None:
    for one in found_in(finished, set_name="train", images=[0, 5]).queries:
        assert one.place not in [near.place for near in one.neighbours]


@pytest.mark.paper("GR-16")
def test_four_images_are_a_figure_with_a_row_of_data_for_each_neighbour(
    finished: Finished,
) -> None:
    (drawn,) = maps(found_in(finished))
    assert drawn.name == "neighbours" and len(drawn.rows) == 4 * NEAREST
    assert len(drawn.figure.axes) == 4 * (1 + NEAREST)


def test_more_images_than_a_figure_holds_are_refused(finished: Finished) -> None:
    with pytest.raises(BadInput, match="at most 64 images"):
        found_in(finished, images=list(range(65)))

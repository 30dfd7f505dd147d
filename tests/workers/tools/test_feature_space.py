"""Features of a trained network as points of a plane."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.pictures import FeatureSpace
from vtjobs.workers.checkpoints.final_weights import final_of
from vtjobs.workers.data.datasets import load_part
from vtjobs.workers.randomness import Streams
from vtjobs.workers.tools.asked import Asked
from vtjobs.workers.tools.feature_space import feature_space
from vtjobs.workers.tools.visualize import pictures
from vtjobs.workers.training.trainee import make_trainee

from ...support.training import CONVNET, run_spec
from .test_score import complete
from .test_visualize import Finished


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    root = tmp_path_factory.mktemp("features")
    workspace, spec, _ = complete(root, run_spec(CONVNET, epochs=2))
    return workspace, spec


def space_of(finished: Finished, **asked: Any) -> FeatureSpace:
    workspace, spec = finished
    found = pictures(
        workspace,
        spec.run_id,
        Asked(kind="features", **asked),
        data_root=workspace.root.parent,
        paths={},
    )
    assert found.space is not None and not found.shown
    return found.space


def test_up_to_a_thousand_images_are_points_with_their_classes(finished: Finished) -> None:
    space = space_of(finished)
    assert space.places == list(range(898)) and space.perplexity == 30
    assert len(space.x) == len(space.y) == len(space.labels) == 898
    assert set(space.labels) == set(range(10))


@pytest.mark.paper("GR-16")
def test_images_of_some_classes_are_shown_by_the_classes_of_another_dataset(
    finished: Finished,
) -> None:
    """As the species of one genus are: figure 2.5 of the thesis."""
    every, some = space_of(finished), space_of(finished, classes=[3, 4])
    digits = dict(zip(every.places, every.labels, strict=True))
    assert {digits[place] for place in some.places} == set(some.labels) == {3, 4}
    assert len(some.places) == sum(digit in (3, 4) for digit in every.labels)
    parity = space_of(finished, classes=[3, 4], labels="digits_parity")
    assert parity.places == some.places
    assert parity.labels == [digit % 2 for digit in some.labels]
    with pytest.raises(BadInput, match="test has no image of these classes"):
        space_of(finished, classes=[12])


@pytest.mark.paper("GR-16")
def test_neighbours_in_the_plane_share_a_class_more_often_than_strangers(
    finished: Finished,
) -> None:
    space = space_of(finished)
    points = torch.tensor([space.x, space.y]).T
    distances = torch.cdist(points, points).fill_diagonal_(torch.inf)
    labels = torch.tensor(space.labels)
    assert (labels[distances.argmin(1)] == labels).float().mean() > 0.3


@pytest.mark.paper("GR-11")
def test_energy_is_the_share_of_variance_of_the_first_components(finished: Finished) -> None:
    space = space_of(finished, images=list(range(40)))
    assert space.perplexity == 13
    assert space.energy == sorted(space.energy)
    assert space.energy[-1] == pytest.approx(100)
    assert len(space.energy) == min(40, CONVNET.args["channels"][-1])


def test_the_same_features_give_the_same_points(finished: Finished) -> None:
    assert space_of(finished, images=list(range(20))) == space_of(finished, images=list(range(20)))


def test_a_few_images_are_not_enough(finished: Finished) -> None:
    with pytest.raises(BadInput, match="at least 5 different images"):
        space_of(finished, images=[0, 1, 2, 3, 3, 3])


def test_features_that_are_all_alike_are_told(finished: Finished, tmp_path: Path) -> None:
    workspace, spec, _ = complete(tmp_path, run_spec(CONVNET, epochs=1))
    final = final_of(workspace, spec.run_id)
    weights = {name: torch.zeros_like(value) for name, value in load_file(final.weights).items()}
    trainee = make_trainee(spec, Streams(spec.seeds))
    trainee.backbone.load_state_dict(weights)
    images = load_part(spec.dataset, "test", Streams(spec.seeds), data_root=tmp_path, paths={})
    with pytest.raises(BadInput, match="features of all images are alike"):
        feature_space(trainee.eval(), final, list(range(9)), images, set_name="test")

"""Features are scored by the nearest training images, as the thesis does it."""

import math
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from sklearn.metrics import average_precision_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn import functional as F

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.workers.tools.neighbours import (
    TEMPERATURE,
    Features,
    average_precision,
    class_masses,
    class_votes,
    conditioned,
    neighbour_scores,
)

FINE, COARSE = 12, 4


def features(images: int, seed: int, *, noise: float = 0.7) -> Features:
    """Images of 12 fine classes around 12 points; three fine classes make a coarse one."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(FINE, 16, generator=torch.Generator().manual_seed(0))
    fine = torch.randint(0, FINE, (images,), generator=draw)
    embeddings = centres[fine] + noise * torch.randn(images, 16, generator=draw)
    return Features(
        embeddings=F.normalize(embeddings, dim=1),
        logits=torch.randn(images, COARSE, generator=draw),
        trained=fine // 3,
        wanted=fine,
    )


@pytest.fixture
def queries() -> Features:
    return features(150, 1)


@pytest.fixture
def known() -> Features:
    return features(400, 2)


@pytest.mark.paper("GR-06")
def test_neighbours_classify_as_those_of_scikit_learn(queries: Features, known: Features) -> None:
    found = neighbour_scores(queries, known, [1, 10, 20])
    for count in (1, 10, 20):
        theirs = KNeighborsClassifier(
            count, metric="cosine", weights=lambda gaps: numpy.exp((1 - gaps) / TEMPERATURE)
        )
        theirs.fit(known.embeddings.numpy(), known.wanted.numpy())
        expected = 100 * theirs.score(queries.embeddings.numpy(), queries.wanted.numpy())
        assert found[f"knn{count}"] == pytest.approx(expected)
    assert 50 < found["knn20"] < 99


@pytest.mark.paper("GR-06")
def test_votes_are_those_of_the_equation() -> None:
    cosines, labels = torch.tensor([[0.9, 0.85, 0.8]]), torch.tensor([[2, 0, 0]])
    weights = [math.exp(value / 0.05) for value in (0.9, 0.85, 0.8)]
    expected = [(weights[1] + weights[2]) / sum(weights), 0.0, weights[0] / sum(weights)]
    assert class_votes(cosines, labels, 3)[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_masses_are_those_of_the_equation_over_all_images() -> None:
    cosines, labels = torch.tensor([[0.9, 0.85, -0.8]]), torch.tensor([2, 0, 0])
    weights = [math.exp(value / 0.05) for value in (0.9, 0.85, -0.8)]
    expected = [(weights[1] + weights[2]) / sum(weights), 0.0, weights[0] / sum(weights)]
    assert class_masses(cosines, labels)[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_neighbours_stand_for_the_classifier_where_a_model_was_trained_by_them(
    queries: Features, known: Features
) -> None:
    bare = replace(queries, logits=None)
    cosines = queries.embeddings @ known.embeddings.T
    informed = replace(queries, logits=class_masses(cosines, known.trained).log().float())
    found = neighbour_scores(bare, known, [1], neighbours_classify=True)
    assert found["map_conditioned"] == pytest.approx(
        neighbour_scores(informed, known, [1])["map_conditioned"], abs=0.01
    )
    assert found["map_conditioned"] > found["map"]


def _mean_average_precision(scores: Tensor, relevant: Tensor) -> float:
    values = [
        average_precision_score(truth, ranked)
        for truth, ranked in zip(relevant.numpy(), scores.numpy(), strict=True)
    ]
    return float(100 * numpy.mean(values))


def _ranked(name: str, queries: Features, known: Features) -> Tensor:
    """The scores of each ranking, written out for one query after the other."""
    assert queries.logits is not None
    cosines = (queries.embeddings @ known.embeddings.T).double()
    if name == "map":
        return cosines
    if name == "map_oracle":
        return cosines + 10 * (queries.trained[:, None] == known.trained)
    p = queries.logits.double().softmax(1)[:, known.trained]
    return cosines + (p / (1 - p)).log()


@pytest.mark.paper("GR-05")
@pytest.mark.parametrize("name", ["map", "map_conditioned", "map_oracle"])
def test_rankings_have_the_average_precision_of_scikit_learn(
    queries: Features, known: Features, name: str
) -> None:
    found = neighbour_scores(queries, known, [1])
    relevant = queries.wanted[:, None] == known.wanted
    expected = _mean_average_precision(_ranked(name, queries, known), relevant)
    assert found[name] == pytest.approx(expected)


@pytest.mark.paper("GR-05")
def test_an_oracle_of_the_coarse_class_ranks_best(queries: Features, known: Features) -> None:
    found = neighbour_scores(queries, known, [1])
    assert found["map_oracle"] > found["map"] > found["map_conditioned"], "its logits are noise"


def test_rankings_do_not_depend_on_how_many_queries_are_ranked_at_a_time(
    queries: Features, known: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = neighbour_scores(queries, known, [5])
    monkeypatch.setattr("vtjobs.workers.tools.neighbours.RANKED", 7 * len(known))
    assert neighbour_scores(queries, known, [5]) == pytest.approx(whole)


def test_equal_scores_rank_as_the_images_stand() -> None:
    relevant = torch.tensor([[False, True, True, False]])
    assert average_precision(torch.zeros(1, 4), relevant).item() == pytest.approx(
        (1 / 2 + 2 / 3) / 2
    )


def test_a_query_without_a_relevant_image_is_left_out_of_the_mean(known: Features) -> None:
    lonely = torch.tensor([FINE])
    one = Features(embeddings=known.embeddings[:1], logits=None, trained=lonely, wanted=lonely)
    both = Features(
        embeddings=known.embeddings[:2],
        logits=None,
        trained=torch.tensor([FINE, int(known.wanted[1])]),
        wanted=torch.tensor([FINE, int(known.wanted[1])]),
    )
    alone = Features(
        embeddings=both.embeddings[1:],
        logits=None,
        trained=both.trained[1:],
        wanted=both.wanted[1:],
    )
    assert neighbour_scores(one, known, [1]) == {"knn1": 0.0}
    assert neighbour_scores(both, known, [1])["map"] == neighbour_scores(alone, known, [1])["map"]


def test_a_certain_classifier_still_ranks_by_cosine_within_its_class() -> None:
    cosines, logits = torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[500.0, 0.0]])
    scores = conditioned(cosines, logits, torch.tensor([0, 0, 1]))
    assert scores.isfinite().all()
    assert scores.argsort(descending=True).tolist() == [[1, 0, 2]]


def test_without_a_classifier_there_is_no_conditioned_ranking(
    queries: Features, known: Features
) -> None:
    plain: dict[str, Any] = {name: getattr(queries, name) for name in ("embeddings", "wanted")}
    found = neighbour_scores(Features(**plain, trained=queries.wanted, logits=None), known, [10])
    assert found.keys() == {"knn10", "map"}


def test_only_the_classes_of_the_set_are_chosen_from(queries: Features, known: Features) -> None:
    allowed = torch.zeros(COARSE, dtype=torch.bool)
    allowed[[0, 2]] = True
    mine = queries.chosen_from(allowed)
    found = neighbour_scores(replace(mine, only=allowed), known, [10])
    assert found == neighbour_scores(mine, known.chosen_from(allowed), [10])
    assert set(mine.trained.tolist()) == {0, 2}
    # Fewer wrong classes are left.
    assert found["map"] > neighbour_scores(mine, known, [10])["map"]


def test_more_neighbours_than_training_images_are_refused(
    queries: Features, known: Features
) -> None:
    with pytest.raises(BadInput, match="--knn 401: the train part has 400 images"):
        neighbour_scores(queries, known, [10, 401])


def test_levels_of_a_dataset_have_the_same_images() -> None:
    assert catalogue.same_images("cifar100") == ["cifar100_coarse"]
    assert catalogue.same_images("cifar100_coarse") == ["cifar100"]
    assert "inat2018" in catalogue.same_images("inat2018_genus")
    assert len(catalogue.same_images("inat2018_genus")) == 6
    assert catalogue.same_images("cifar10") == []
    assert catalogue.same_images("folder") == []

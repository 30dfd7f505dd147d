"""How well a linear layer tells apart arbitrary halves of each class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from vtjobs.workers.tools.separability import fit, halves_of, separability


@pytest.mark.paper("GR-09")
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 100))
def test_each_class_is_split_evenly_at_random(classes: list[int], seed: int) -> None:
    trained = torch.tensor(classes)
    halves = halves_of(trained, torch.Generator().manual_seed(seed))
    assert torch.equal(halves // 2, trained)
    for one in set(classes):
        first, second = (int((halves == 2 * one + half).sum()) for half in (0, 1))
        assert first - second in (0, 1)


def test_two_splits_differ_and_the_same_number_is_the_same_split() -> None:
    trained = torch.arange(400) % 4
    one, again, other = (
        halves_of(trained, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert 0.3 < float((one != other).double().mean()) < 0.7


@pytest.mark.paper("GR-09")
def test_the_layer_is_the_one_of_least_loss() -> None:
    """As scikit-learn fits it without a penalty."""
    draw = torch.Generator().manual_seed(0)
    features, labels = torch.randn(600, 5, generator=draw), torch.arange(600) % 4
    features += 0.7 * torch.nn.functional.one_hot(labels, 5)
    theirs = LogisticRegression(C=float("inf"), tol=1e-8, max_iter=2000).fit(features, labels)
    wanted = torch.tensor(theirs.predict_proba(features), dtype=torch.float32)
    assert torch.allclose(fit(features, labels)(features).softmax(1), wanted, atol=1e-3)


def test_more_dimensions_than_images_tell_everything_apart_and_none_tell_nothing() -> None:
    trained = torch.arange(60) % 3
    features = torch.randn(60, 80, generator=torch.Generator().manual_seed(0))
    logits = 20.0 * torch.nn.functional.one_hot(trained, 3)
    found = separability(features, trained, logits, splits=3)
    assert found == pytest.approx(
        {
            "separability": 100.0, "separability_std": 0.0,
            "separability_conditioned": 100.0, "separability_conditioned_std": 0.0,
        }
    )  # fmt: skip
    same = separability(torch.ones(60, 4), trained, logits, splits=3)
    # One of six classes is guessed; half of each where the class is known.
    assert same["separability"] == pytest.approx(100 / 6)
    assert same["separability_conditioned"] == pytest.approx(50.0)


def test_the_coarse_class_helps_where_features_say_little_of_it() -> None:
    """Features that show the half of an image and not its class."""
    trained = torch.arange(800) % 4
    halves = halves_of(trained, torch.Generator().manual_seed(0)) % 2
    features = halves[:, None] + 0.3 * torch.randn(
        800, 2, generator=torch.Generator().manual_seed(1)
    )
    logits = 9.0 * torch.nn.functional.one_hot(trained, 4)
    # Of the first split alone, as the halves of others are not in the features.
    one = separability(features, trained, logits, splits=1)
    assert one["separability"] < 40 and one["separability_conditioned"] > 90


def test_a_run_without_a_classifier_is_not_conditioned() -> None:
    found = separability(torch.randn(40, 3), torch.arange(40) % 2, None, splits=2)
    assert found.keys() == {"separability", "separability_std"}

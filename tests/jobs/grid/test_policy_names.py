"""Names of augmentation policies, held against timm's own reading of them."""

import pytest
from timm.data.auto_augment import (
    augment_and_mix_transform,
    auto_augment_transform,
    rand_augment_transform,
)

from vtjobs.jobs.grid.policy_names import drawn_from, policy_problem

KNOWN = [
    "rand-m9-mstd0.5-inc1",
    "rand-m9-n3-p0.7-mmax12-mstd101",
    "rand-mstd1-tweights",
    "rand-m6-t3aw",
    "augmix-m3-w3-d2-a1-b0",
    "original-mstd0.5",
    "originalr",
    "v0",
    "v0r-mstd0.5",
    "3a",
    "3a-grayscale-blur",
]
REFUSED = ["rand-m9.5", "rand-n2.5", "rand-m9-inc1.5", "augmix-w2.5"]
UNKNOWN = ["rnd-m9", "rand-x9", "rand-m9-mst0.5", "augmix-n2", "original-m9", "v1"]


def by_timm(name: str) -> object:
    makers = {"rand": rand_augment_transform, "augmix": augment_and_mix_transform}
    make = makers.get(name.split("-")[0], auto_augment_transform)
    return make(name, {"translate_const": 10, "img_mean": (0, 0, 0)})


@pytest.mark.parametrize("name", KNOWN)
def test_what_timm_reads_is_let_through(name: str) -> None:
    assert by_timm(name)
    assert policy_problem(name) is None


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_timm_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(AssertionError):
        by_timm(name)
    assert policy_problem(name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_timm_cannot_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        by_timm(name)
    assert "takes a whole number" in str(policy_problem(name))


def test_no_more_operations_are_drawn_than_a_weighted_set_has() -> None:
    assert policy_problem("rand-n14-tweights") is None
    assert "a weighted set has 14 operations" in str(policy_problem("rand-n15-tweights"))


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("3a", set()),
        ("3a-grayscale", {"Desaturate"}),
        ("3a-solarize-blur-mstd0.5", {"Solarize", "GaussianBlurRand"}),
        ("rand-m9", set()),
    ],
)
def test_a_3_augment_draws_from_what_it_names(name: str, drawn: set[str]) -> None:
    assert policy_problem(name) is None
    assert drawn_from(name) == drawn


def test_an_operation_that_3_augment_does_not_have_is_refused() -> None:
    assert policy_problem("3a-gray") == (
        "'gray' is no setting of 3a. Allowed, each with a number: mstd; or without one: blur,"
        " grayscale, solarize"
    )
    assert policy_problem("original-grayscale")

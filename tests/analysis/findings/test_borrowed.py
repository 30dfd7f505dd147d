"""What printed deviations say of single runs, marked as borrowed."""

import math

import pytest

from vtjobs.analysis.findings.borrowed import borrowed
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.output.notes import comparison_notes

from ...support.cells import cell


def single(dataset: str = "imagenet1k", **more: object) -> object:
    return cell("drloc", [80.5], baseline="supervised", dataset=dataset, **more)


def test_imagenet_has_the_deviations_that_the_thesis_prints() -> None:
    found = borrowed(single(), 0.4, 1, 1)
    assert found is not None
    # Tables 3.8 and figure 6.7: 0.1 of a ResNet-50 over 100 seeds, and up to 0.2.
    assert (found.low, found.high) == (0.1, 0.2)
    assert found.tables == ["thesis:3.8", "thesis:fig6.7"]
    by_hand = [0.4 / (math.sqrt(2) * std) for std in (0.2, 0.1)]
    assert found.errors == pytest.approx(by_hand)


def test_a_further_set_has_its_own_deviation() -> None:
    found = borrowed(single(set="v2"), 0.4, 1, 3)
    assert found is not None and (found.low, found.high, found.count) == (0.23, 0.23, 1)
    assert found.errors == pytest.approx([0.4 / (0.23 * math.sqrt(1 + 1 / 3))] * 2)


def test_flowers_in_relvits_protocol_is_relvits_flowers() -> None:
    found = borrowed(single("flowers102_relvit"), 1.0, 1, 1)
    assert found is not None and found.tables == ["relvit:2", "relvit:3"]


@pytest.mark.parametrize(
    ("dataset", "difference", "n", "m"),
    [
        ("imagenet1k", 0.4, 2, 2),
        ("imagenet1k", None, 1, 1),
        ("imagenet1k", 0.4, 1, 0),
        ("digits", 0.4, 1, 1),
    ],
)
def test_nothing_is_borrowed_where_there_is_a_test_or_nothing_is_printed(
    dataset: str, difference: float | None, n: int, m: int
) -> None:
    assert borrowed(single(dataset), difference, n, m) is None


def test_the_note_says_that_it_is_no_test_and_whose_deviations_they_are() -> None:
    cells = [cell("supervised", [80.0], dataset="imagenet1k"), single()]
    document = compare(cells)
    (one,) = document.comparisons
    assert one.verdict == "not testable" and one.borrowed is not None
    (note,) = [note for note in comparison_notes(document) if "Borrowed" in note]
    assert note == (
        "vit imagenet1k drloc: one seed on a side, no test. Printed standard deviations over seeds on"
        " imagenet1k are 0.1 to 0.2 (thesis:3.8, thesis:fig6.7); with these the difference is 1.8 to"
        " 3.5 standard errors. Borrowed from other models: yours may spread otherwise."
    )
    two = [
        cell("supervised", [80.0, 80.2], dataset="imagenet1k"),
        cell("drloc", [80.4, 80.5], baseline="supervised", dataset="imagenet1k"),
    ]
    assert not [note for note in comparison_notes(compare(two)) if "Borrowed" in note]

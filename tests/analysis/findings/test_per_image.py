"""The spread over seeds, split by which images each seed classifies rightly."""

import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from vtjobs.analysis.findings.per_image import CellSplit, mcnemar, read, split
from vtjobs.analysis.output.layout import markdown
from vtjobs.analysis.output.render import of_variances
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.paths import Workspace

from ...support.training import run_spec, training

TABLES = st.integers(3, 6).flatmap(
    lambda runs: st.integers(2, 20).flatmap(
        lambda images: st.lists(
            st.lists(st.booleans(), min_size=images, max_size=images), min_size=runs, max_size=runs
        )
    )
)


@pytest.mark.paper("DE-14", "VA-21")
@given(TABLES)
def test_the_parts_are_those_of_a_two_way_analysis_of_variance(table: list[list[bool]]) -> None:
    """Sums of squares cell by cell, as in any textbook's two-way layout without replication."""
    found = split({seed: numpy.array(row) for seed, row in enumerate(table)})
    runs, images = len(table), len(table[0])
    grand = statistics.fmean(itertools.chain(*table))
    rows = [statistics.fmean(row) for row in table]
    columns = [statistics.fmean(column) for column in zip(*table, strict=True)]
    ms_run = images * sum((row - grand) ** 2 for row in rows) / (runs - 1)
    rest = sum(
        (table[i][j] - rows[i] - columns[j] + grand) ** 2
        for i in range(runs)
        for j in range(images)
    )
    ms_rest = rest / ((runs - 1) * (images - 1))
    assert found.variance_carries == pytest.approx(10_000 * (ms_run - ms_rest) / images, abs=1e-6)
    assert found.std_test_set == pytest.approx(100 * math.sqrt(ms_rest / images), abs=1e-6)
    # The whole is the sample deviation of the accuracies, as the report has it.
    assert found.std == pytest.approx(100 * statistics.stdev(rows), abs=1e-6)
    pairs = list(itertools.combinations(table, 2))
    differ = [sum(a != b for a, b in zip(*pair, strict=True)) / images for pair in pairs]
    assert found.disagreement == pytest.approx(100 * statistics.fmean(differ), abs=1e-6)


@pytest.mark.paper("VA-13")
def test_seeds_of_different_skill_on_the_same_images_are_told_from_the_luck_of_the_images() -> None:
    """300 seeds on 4,000 images: accuracy 80 ± 1 points by the seed, and independent errors."""
    draw = numpy.random.default_rng(0)
    skills = draw.normal(0.80, 0.01, 300)
    found = split({seed: draw.random(4000) < skill for seed, skill in enumerate(skills)})
    assert found.std_carries == pytest.approx(100 * skills.std(ddof=1), abs=0.12)
    assert found.std_test_set == pytest.approx(100 * math.sqrt(0.8 * 0.2 / 4000), abs=0.02)
    same = split({seed: draw.random(4000) < 0.8 for seed in range(300)})
    assert same.std_carries < 0.3 * same.std_test_set


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("images", [100, 2000])
def test_the_interval_of_what_carries_holds_it_as_often_as_it_says(seeds: int, images: int) -> None:
    """Skill of a seed, difficulty of an image, and both together, as a probit model."""
    draw = numpy.random.default_rng(1)
    spread, draws, whole = 0.1, 200, math.sqrt(1 + 1.5**2)
    skills = draw.normal(0.0, spread, 50_000)
    truth = 100 * norm.cdf(1.2 + skills / whole).std()
    held = 0
    for _ in range(draws):
        of_seed = draw.normal(0.0, spread, (seeds, 1))
        of_image = draw.normal(0.0, 1.5, (1, images))
        correct = 1.2 * whole + of_seed + of_image + draw.normal(size=(seeds, images)) > 0
        found = split(dict(enumerate(correct))).std_carries_interval
        assert found is not None
        held += found[0] <= truth <= found[1]
    # Four standard errors of 200 draws.
    assert held / draws == pytest.approx(0.95, abs=0.062)


def test_images_that_all_seeds_find_hard_are_no_spread() -> None:
    hard = numpy.arange(100) < 80
    found = split(dict.fromkeys(range(5), hard))
    assert (found.std, found.disagreement, found.std_test_set) == (0.0, 0.0, 0.0)
    assert found.std_binomial == pytest.approx(4.0)


def test_two_seeds_are_not_split() -> None:
    found = split({0: numpy.array([True, False]), 1: numpy.array([True, True])})
    assert found.why_not and found.std is None
    assert split({}).n == 0


def test_the_text_holds_every_number_and_says_what_is_missing() -> None:
    cell = {
        "schema_version": 1,
        "cell_id": "c",
        "backbone": "b",
        "dataset": "d",
        "recipe": "r",
        "stage": "",
        "axes": {},
        "set": "test",
        "mean": 80.0,
        "without": [],
    }
    draw = numpy.random.default_rng(1)
    rows = [
        CellSplit(
            **cell,
            head=head,
            disagreement_baseline=other,
            **to_plain(split({seed: draw.random(50) < 0.9 for seed in range(seeds)})),
        )
        for head, other, seeds in (("drloc", None, 4), ("other", 2.5, 1))
    ]
    json.dumps(to_plain(rows), allow_nan=False)
    text = markdown(of_variances(rows))
    assert (
        f"{rows[0].std:.2f}" in text
        and "b d other: needs three seeds with stored per-image results." in text
    )


def test_bits_are_read_from_the_checkpoint_of_the_attempt_that_completed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "runs").create()
    spec = run_spec(epochs=1)
    folder = workspace.run(spec.run_id)
    assert read(workspace, spec.run_id, "test") is None
    folder.attempt(1).mkdir(parents=True)
    journal = JournalWriter(folder.journal(1, 0))
    journal.write("start", at=0.0, attempt=1, resumed_attempt=None, resumed_step=None)
    scores: dict[str, float] = {}

    def report(kind: str, **event: Any) -> None:
        if kind == "evaluation":
            scores.update(event["metrics"])

    assert training(spec, folder.checkpoints(1), report=report).run()
    assert read(workspace, spec.run_id, "test") is None, "the run has not completed"
    journal.write("end", at=1.0, state="completed")
    journal.close()
    found = read(workspace, spec.run_id, "test")
    assert len(found) == 898 and 100 * found.mean() == pytest.approx(scores["top1"])
    assert read(workspace, spec.run_id, "val") is None
    place = max(folder.checkpoints(1).glob("step-*")) / "correct.safetensors"
    place.write_bytes(place.read_bytes()[:20])
    assert read(workspace, spec.run_id, "test") is None


@pytest.mark.paper("VA-21")
def test_two_checkpoints_are_compared_on_the_images_that_just_one_gets_right() -> None:
    # Agresti, Categorical Data Analysis, table 10.1: approval of a prime minister, 150 against 86
    # changed their mind.
    one = numpy.array([True] * 794 + [True] * 150 + [False] * 86 + [False] * 570)
    other = numpy.array([True] * 794 + [False] * 150 + [True] * 86 + [False] * 570)
    found = mcnemar(one, other)
    assert (found.images, found.both, found.neither) == (1600, 794, 570)
    assert (found.only_first, found.only_second) == (150, 86)
    assert found.difference == pytest.approx(4.0)
    # z = -4.17 by the normal approximation.
    assert math.log(found.p) == pytest.approx(math.log(2 * norm.sf(4.17)), rel=0.03)
    assert mcnemar(other, one).p == found.p


def test_checkpoints_that_agree_on_every_image_have_no_p() -> None:
    one = numpy.array([True, False])
    assert mcnemar(one, one).p is None

"""What papers print, computed anew."""

import math

import numpy
import pytest
from scipy.stats import ttest_ind_from_stats

from vtjobs.analysis.findings.published import (
    PAPERS,
    AuditedGain,
    Published,
    audit,
    records,
    select,
)
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import BadInput, NothingMatched


@pytest.mark.paper("DR-57", "DR-79")
@pytest.mark.parametrize("paper", PAPERS)
def test_every_record_is_whole_and_measured_against_one_that_is_there(paper: str) -> None:
    found = records(paper)
    assert len(found) > 100
    for record in found.values():
        assert record.id.startswith(f"{paper}.")
        assert record.baseline is None or record.baseline in found
        assert record.std is None or record.std > 0


def test_a_table_is_chosen_by_its_number() -> None:
    assert {record.table for record in select("drloc:3")} == {"3"}
    assert len(select("drloc")) == len(records("drloc"))


def test_a_table_or_paper_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NothingMatched, match="Its tables: 2a, 2b, 3"):
        select("drloc:99")
    with pytest.raises(BadInput, match="Did you mean 'drloc'"):
        select("drlok")


def test_printed_gains_that_the_printed_means_do_not_give_are_found() -> None:
    rows = [row for paper in PAPERS for row in audit(paper) if row.agrees is False]
    assert {row.id: (row.recomputed, row.printed) for row in rows} == {
        "drloc.r.t4.infograph.cvt_13.drloc": (0.66, 0.67),
        "drloc.r.t4.real.cvt_13.drloc": (0.72, 0.68),
        "drloc.r.t11.coco.swin_t.drloc.ap_mask.detector=mask_rcnn": (0.5, 1.0),
        "relvit.r.t2.cifar100.vit_s4.relvit": (5.8, 5.85),
    }


def of(name: str, identity: str) -> AuditedGain:
    (row,) = [row for row in audit(name) if row.id == identity]
    return row


def test_a_gain_is_tested_from_the_printed_summaries_and_at_worst() -> None:
    # scipy.stats.ttest_ind_from_stats(96.41, 0.39, 5, 95.94, 0.05, 5, equal_var=False)
    row = of("relvit:3", "relvit.r.t3.svhn.vit_s4.relvit")
    assert row.p == pytest.approx(0.0537879, abs=1e-6)
    # The same of 96.405 (0.395·√1.25) and 95.945 (0.045).
    assert row.p_worst == pytest.approx(0.0800560, abs=1e-6)


def test_the_worst_may_be_where_one_side_has_the_smallest_deviation() -> None:
    row = of("relvit:2", "relvit.r.t2.svhn.vit_s4.relvit")
    # With the largest on both sides it would be 3.3e-7.
    assert row.p_worst == pytest.approx(1.84378e-6, rel=1e-5)


def test_no_numbers_that_round_to_the_printed_ones_give_a_larger_p() -> None:
    tested = 0
    for row in (row for paper in PAPERS for row in audit(paper)):
        if row.p is None or row.std is None or row.std_baseline is None:
            continue
        record, baseline = (records(row.id.split(".")[0])[key] for key in (row.id, row.baseline))
        n, m = row.n, row.n_baseline
        assert n is not None and m is not None and row.p_worst is not None
        gain = abs(row.mean - row.mean_baseline) + record.half_unit * numpy.linspace(-2, 2, 9)
        one = numpy.linspace(row.std - record.half_unit, _largest(row.std, record, n), 40)
        other = numpy.linspace(
            row.std_baseline - baseline.half_unit, _largest(row.std_baseline, baseline, m), 40
        )
        grid = numpy.meshgrid(gain, one, other)
        found = ttest_ind_from_stats(grid[0], grid[1], n, 0.0, grid[2], m, equal_var=False)
        assert found.pvalue.max() <= row.p_worst * (1 + 1e-9), row.id
        tested += 1
    assert tested == 13


def _largest(std: float, record: Published, n: int) -> float:
    """Return the largest deviation with ddof 1 behind a printed one with ddof 0."""
    return (std + record.half_unit) * math.sqrt(n / (n - 1))


@pytest.mark.paper("RV-41")
def test_a_gain_over_a_single_number_needs_the_spread_of_one_more_run() -> None:
    row = of("relvit:3", "relvit.r.t3.cifar100.swin_t.relvit")
    assert row.n_baseline == 1 and row.p == pytest.approx(0.069, abs=5e-4)


def test_two_single_numbers_are_not_tested() -> None:
    row = of("drloc:4", "drloc.r.t4.real.cvt_13.drloc")
    assert row.p is None and row.p_worst is None and row.why_not


def test_the_worst_case_is_never_better_than_the_printed_one() -> None:
    rows = [row for paper in PAPERS for row in audit(paper) if row.p is not None]
    assert len(rows) == 21
    assert all(row.p_worst >= row.p for row in rows)


def test_records_are_plain_data() -> None:
    record = records("drloc")["drloc.r.t3.imagenet100.cvt_13.drloc.100"]
    assert to_plain(record)["variant"] == {"lambda": 0.1, "m": 64}

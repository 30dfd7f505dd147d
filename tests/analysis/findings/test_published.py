"""What papers print, computed anew."""

import pytest

from vtjobs.analysis.findings.published import PAPERS, AuditedGain, audit, records, select
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.errors import BadInput, NothingMatched


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
    # The same of 96.405, 0.395·√1.25, 95.945 and 0.055·√1.25.
    assert row.p_worst == pytest.approx(0.0798552, abs=1e-6)


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

"""What a grid declares of its comparison is kept with its moment.

A change after the first run needs a reason.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vtjobs.analysis.findings.cells import planned
from vtjobs.analysis.findings.comparisons import compare
from vtjobs.analysis.findings.declared import declaration_notes, settle
from vtjobs.analysis.findings.gather import gather
from vtjobs.analysis.findings.plan import ComparisonPlan
from vtjobs.cli import application
from vtjobs.db import queries
from vtjobs.db.engine import reading
from vtjobs.db.ingest import ingest_evaluations
from vtjobs.jobs.atomic_files import make_folder
from vtjobs.jobs.documents import from_plain, to_plain
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.comparing import Change, CompareSettings, Family, OnDiverged, Select, Test
from vtjobs.jobs.run.selector import Selection, parse_selection
from vtjobs.jobs.values import changed
from vtjobs.jobs.workspace.grid_settings import Declaration
from vtjobs.jobs.workspace.journal import JournalWriter
from vtjobs.jobs.workspace.stored_grid import read_grid
from vtjobs.orchestrator.requests.actions import retry
from vtjobs.orchestrator.requests.declarations import late, refusal
from vtjobs.orchestrator.requests.submit import submit

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
NOTHING = dict.fromkeys(("test", "alpha", "margin", "min_effect", "metric", "set"))


def _grid(compare: str | None, **more: Any) -> str:
    return tiny_grid(extra=f"compare: {compare}" if compare else "", **more)


def _declared(lab: Lab, text: str, **more: Any) -> list[Declaration]:
    prepared = lab.prepare(text)
    submit(lab.context, prepared, **more)
    stored = read_grid(lab.context.workspace, prepared.frozen.grid_id)
    assert stored is not None
    return stored.settings.declarations


def _plan(lab: Lab, **given: Any) -> ComparisonPlan:
    return settle(lab.context.ledger, Selection(), NOTHING | given)


def test_a_declaration_is_kept_with_its_moment(quiet_lab: Lab) -> None:
    (found,) = _declared(quiet_lab, _grid("{test: paired, min_effect: 0.5}"))
    assert (found.started, found.runs, found.reason) == (0, 2, None)
    assert found.compare == CompareSettings(test=Test.PAIRED, min_effect=0.5)
    assert _declared(quiet_lab, _grid("{test: paired, min_effect: 0.5}")) == [found]
    assert declaration_notes([found]) == [
        f"Declared on {declaration_notes([found])[0][12:22]}, before the first run."
    ]


def test_it_changes_freely_before_the_first_run(quiet_lab: Lab) -> None:
    _declared(quiet_lab, _grid("{alpha: 0.05}"))
    (found,) = _declared(quiet_lab, _grid("{alpha: 0.01}"))
    assert found.compare == CompareSettings(alpha=0.01)


def test_seeds_go_back_freely_before_the_first_run(quiet_lab: Lab) -> None:
    for seeds in ("3", "5", "3"):
        (found,) = _declared(quiet_lab, _grid("{alpha: 0.05}", seeds=seeds))
        assert [len(part.seeds) for part in found.design] == [int(seeds)]


def test_it_needs_a_reason_once_a_run_has_started_and_every_report_says_it(lab: Lab) -> None:
    lab.submit(_grid("{alpha: 0.05}"))
    lab.finish()
    changes = (
        r"^compare.alpha \(0.05, now 0.1\): not as declared on .*, and 2 of 2 runs have started"
    )
    with pytest.raises(BadInput, match=changes):
        submit(lab.context, lab.prepare(_grid("{alpha: 0.1}")))
    assert _plan(lab).alpha == 0.05
    with pytest.raises(BadInput, match=r"^compare \(given, now none\): not as declared"):
        submit(lab.context, lab.prepare(_grid(None)))
    first, second = _declared(lab, _grid("{alpha: 0.1}"), amend="the reviewers asked")
    assert (first.reason, second.reason, second.started) == (
        None,
        "the reviewers asked",
        2,
    )
    plan = _plan(lab)
    assert plan.alpha == 0.1
    assert declaration_notes(plan.declared)[1].endswith(
        "when 2 of 2 runs had results, none to compare with another: the reviewers asked."
    )


@pytest.mark.parametrize("reason", ["", "  ", "REASON"])
def test_what_an_error_prints_in_its_place_is_no_reason(quiet_lab: Lab, reason: str) -> None:
    quiet_lab.submit(_grid("{alpha: 0.05}"))
    changed = quiet_lab.prepare(_grid("{alpha: 0.1}"))
    with pytest.raises(BadInput, match="is no reason: say in a sentence why it changes"):
        submit(quiet_lab.context, changed, amend=reason)


def test_a_first_declaration_after_the_runs_says_so(lab: Lab) -> None:
    lab.submit(_grid(None))
    lab.finish()
    (found,) = _declared(lab, _grid("{test: welch}"))
    assert (found.started, found.finished) == (2, 2)
    assert "when 2 of 2 runs had results" in declaration_notes([found])[0]


TWO = "[supervised, drloc: {weight: 0.1}]"
THREE = "[supervised, drloc: {weight: 0.1}, drloc: {weight: 1.0}]"


def _finished(lab: Lab, text: str, *, of: int | None = None) -> list[str]:
    """Submit a grid, and end its runs, or the first few of them; return all of them."""
    run_ids = lab.submit(text)
    lab.tick()
    for number, run_id in enumerate(run_ids[:of]):
        journal(lab, run_id, 1, started(), scored(90.0 + number % 4), ended("completed"))
    lab.tick()
    return run_ids


def test_more_seeds_after_results_are_a_change_that_needs_a_reason(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds="3"))
    wider = _grid("{alpha: 0.05}", heads=TWO, seeds="4")
    assert "1 more seed: not as declared" in refusal(
        quiet_lab.context, quiet_lab.prepare(wider).frozen
    )
    with pytest.raises(
        BadInput, match=r"1 more seed: not as declared on .*, and 6 of 8 runs have results"
    ):
        submit(quiet_lab.context, quiet_lab.prepare(wider))
    first, second = _declared(quiet_lab, wider, amend="p was 0.06")
    assert (first.change, first.finished, first.runs) == (Change.DECLARED, 0, 6)
    assert (second.change, second.finished, second.runs) == (Change.AMENDED, 6, 8)
    plan = _plan(quiet_lab)
    assert plan.exploratory == ("it was amended when 6 of 8 runs had results",)


def test_more_seeds_before_two_heads_can_be_compared_are_no_change(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", seeds="3"))
    *_, second = _declared(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds="4"))
    assert (second.change, second.finished) == (Change.DECLARED, 3)
    assert not _plan(quiet_lab).exploratory


@pytest.mark.parametrize("compare", ["{looks: [3, 5]}", "{anytime: true}"])
def test_looks_and_anytime_allow_more_seeds_behind_the_others(quiet_lab: Lab, compare: str) -> None:
    _finished(quiet_lab, _grid(compare, heads=TWO, seeds="3"))
    *_, added = _declared(quiet_lab, _grid(compare, heads=TWO, seeds="5"))
    assert (added.change, added.finished, added.runs) == (Change.SEEDS, 6, 10)
    assert not _plan(quiet_lab).exploratory
    with pytest.raises(BadInput, match="1 more seed, 1 fewer seed: not as declared"):
        _declared(quiet_lab, _grid(compare, heads=TWO, seeds="[1, 2, 3, 4, 5]"))


@pytest.mark.parametrize(
    ("compare", "warns"), [("{alpha: 0.05}", True), ("{anytime: true}", False), (None, False)]
)
def test_power_says_what_its_remedy_makes_of_a_declaration(
    quiet_lab: Lab, compare: str | None, warns: bool
) -> None:
    _finished(quiet_lab, _grid(compare, heads=TWO, seeds="3"))
    words = ["power", "tiny", "--half-width", "1", "--workspace", str(quiet_lab.root)]
    done = CliRunner().invoke(application(), words)
    assert "Submit them: vtjobs topup tiny" in done.output
    assert ("make the declared comparison exploratory" in done.output) is warns


def test_a_later_file_with_the_winner_alone_needs_a_reason(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=THREE))
    with pytest.raises(BadInput, match="1 fewer cell: not as declared"):
        _declared(quiet_lab, _grid("{alpha: 0.05}", heads=TWO))


def test_the_winner_under_a_new_name_was_declared_late(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=THREE))
    (found,) = _declared(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, name="winner"))
    assert (found.change, found.finished) == (Change.LATE, 4)
    plan = settle(quiet_lab.context.ledger, Selection(names=("winner",)), NOTHING)
    assert plan.exploratory == ("it was declared when 4 of 4 runs had results",)


def test_who_declares_late_is_told_before_and_once(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid(None, heads=TWO))
    declares = _grid("{alpha: 0.05}", heads=TWO)
    said = late(quiet_lab.context, quiet_lab.prepare(declares).frozen)
    assert said == (
        "compare: declared when 4 of 4 runs have results, so the comparison will be called"
        " exploratory"
    )
    _declared(quiet_lab, declares)
    assert late(quiet_lab.context, quiet_lab.prepare(declares).frozen) == ""


@pytest.mark.parametrize("compare", [None, "{alpha: 0.05}"])
def test_nothing_is_late_without_results(quiet_lab: Lab, compare: str | None) -> None:
    assert late(quiet_lab.context, quiet_lab.prepare(_grid(compare)).frozen) == ""


def test_seeds_that_topup_adds_need_no_reason_and_are_exploratory(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{min_effect: 1}", heads=TWO, seeds="3"))
    wider = _grid("{min_effect: 1}", heads=TWO, seeds="7")
    *_, added = _declared(quiet_lab, wider, counted="topup for a difference of 1")
    assert added.change is Change.COUNTED
    assert declaration_notes([added, added])[1].endswith(": topup for a difference of 1.")
    assert _plan(quiet_lab).exploratory == (
        "seeds were added by topup when 6 of 14 runs had results",
    )


def test_submitting_the_file_again_after_topup_changes_nothing(quiet_lab: Lab) -> None:
    narrow, wider = (_grid("{looks: [3, 5]}", heads=TWO, seeds=seeds) for seeds in ("3", "5"))
    _finished(quiet_lab, narrow)
    added = _declared(quiet_lab, wider)
    assert _declared(quiet_lab, narrow) == added
    # The file has fewer seeds than were declared, and is no whole comparison of its own.
    plan = _plan_of(quiet_lab, "tiny")
    assert plan.exploratory == ("not the declared comparison: seeds 3, 4 left out",)


def _plan_of(lab: Lab, *words: str) -> ComparisonPlan:
    return settle(lab.context.ledger, parse_selection(list(words)), NOTHING)


def test_a_baseline_of_which_some_finished_seeds_are_left_out_was_chosen_late(
    quiet_lab: Lab,
) -> None:
    _finished(quiet_lab, _grid(None, seeds="10", name="base"))
    whole, part = (
        _declared(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds=seeds, name=name))[-1]
        for name, seeds in (("whole", "10"), ("part", "[2, 4, 7]"))
    )
    assert (whole.change, part.change) == (Change.DECLARED, Change.LATE)


def test_a_confirmation_with_new_seeds_is_declared_in_time(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{family: screen}", heads=THREE))
    confirmed = _grid("{alpha: 0.05}", heads=TWO, seeds="{range: [100, 104]}", name="confirm")
    (found,) = _declared(quiet_lab, confirmed)
    assert (found.change, found.finished) == (Change.DECLARED, 0)


def test_scores_of_runs_that_still_train_are_results(quiet_lab: Lab) -> None:
    run_ids = quiet_lab.submit(_grid("{alpha: 0.05}", heads=TWO))
    quiet_lab.tick()
    for run_id in run_ids:
        journal(quiet_lab, run_id, 1, started(), scored(90.0))
    quiet_lab.tick()
    with pytest.raises(BadInput, match="1 more seed: not as declared"):
        _declared(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds="3"))


def test_a_run_that_ran_again_after_its_result_makes_a_comparison_exploratory(
    quiet_lab: Lab,
) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds="3"))
    context = quiet_lab.context
    run_id = next(iter(quiet_lab.states()))
    retry(context, [run_id], clean=True)
    quiet_lab.tick()
    journal(quiet_lab, run_id, 2, started(attempt=2), scored(99.0), ended("completed"))
    quiet_lab.tick()
    plan = _plan_of(quiet_lab, "tiny")
    found = compare(planned(context.ledger, parse_selection(["tiny"]), plan), plan)
    (why,) = found.exploratory
    assert why.startswith("seed ") and why.endswith(" ran again after a result was there")


@pytest.mark.parametrize(
    ("words", "says", "m"),
    [
        (("seed!=1",), "seed 1", {"": 2}),
        (("seed=0,2",), "seed 1", {"": 2}),
        (("head=supervised,drloc(weight=1.0)",), "head drloc(weight=0.1)", {"": 2}),
    ],
)
def test_a_part_of_the_declared_runs_is_another_comparison(
    quiet_lab: Lab, words: tuple[str, ...], says: str, m: dict[str, int]
) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=THREE, seeds="3"))
    context = quiet_lab.context
    plan = settle(context.ledger, parse_selection(["tiny", *words]), NOTHING)
    assert plan.exploratory == (f"not the declared comparison: {says} left out",)
    assert plan.declared == [] and plan.family_sizes == m
    cells = planned(context.ledger, parse_selection(["tiny", *words]), plan)
    assert {cell.planned for cell in cells} == {3}
    assert not any(cell.marked.best or cell.marked.like_best for cell in cells)
    found = compare(cells, plan)
    assert {one.m for one in found.comparisons} == {2}
    assert all(
        "exploratory" in one.detail for one in found.comparisons if one.verdict == "separable"
    )


def test_stages_that_nothing_is_compared_at_may_be_left_out(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=TWO))
    selection = parse_selection(["tiny", "dataset=digits"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING)
    assert plan.declared and not plan.exploratory


def test_a_declared_comparison_waits_for_its_seeds(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{alpha: 0.05}", heads=TWO, seeds="4"), of=6)
    selection = parse_selection(["tiny"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING)
    cells = planned(quiet_lab.context.ledger, selection, plan)
    (found,) = compare(cells, plan).comparisons
    assert (found.verdict, found.detail, found.p) == (
        "not testable",
        "6 of 8 declared runs have finished",
        None,
    )
    assert not any(cell.marked.best or cell.marked.like_best for cell in cells)


def _evaluated(lab: Lab, run_ids: list[str], metric: str = "knn20") -> None:
    """Score completed runs as `vtjobs evaluate` does."""
    for number, run_id in enumerate(run_ids):
        writer = JournalWriter(make_folder(lab.run(run_id).evaluations) / "0001-abc.jsonl")
        fields = {"epoch": 1, "step": 8, "set": "test", "metrics": {metric: 50.0 + number % 4}}
        writer.write("evaluation", at=9.0, **fields)
        writer.close()
    ingest_evaluations(lab.context.ledger, lab.context.workspace, run_ids)


def test_a_comparison_declared_by_neighbours_waits_until_all_its_seeds_are_scored(
    quiet_lab: Lab,
) -> None:
    run_ids = _finished(quiet_lab, _grid("{metric: knn20}", heads=TWO, seeds="3"))
    quiet_lab.tick()
    selection = parse_selection(["tiny"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING)
    _evaluated(quiet_lab, run_ids[:4])
    (found,) = compare(planned(quiet_lab.context.ledger, selection, plan), plan).comparisons
    assert (found.detail, found.p, found.lost) == ("4 of 6 declared runs are scored", None, [])
    assert found.unscored
    _evaluated(quiet_lab, run_ids[4:])
    (found,) = compare(planned(quiet_lab.context.ledger, selection, plan), plan).comparisons
    assert found.p is not None and not found.unscored


def test_an_interim_analysis_waits_for_a_low_seed_that_is_not_scored_yet(quiet_lab: Lab) -> None:
    text = _grid("{metric: knn20, looks: [3, 5]}", heads=TWO, seeds="5")
    run_ids = _finished(quiet_lab, text)
    selection = parse_selection(["tiny"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING)
    with reading(quiet_lab.context.ledger.engine) as connection:
        seeds = {row.run_id: row.seed for row in queries.list_runs(connection, selection)}
    _evaluated(quiet_lab, [run_id for run_id in run_ids if seeds[run_id] != 1])
    (found,) = compare(planned(quiet_lab.context.ledger, selection, plan), plan).comparisons
    assert (found.verdict, found.look, found.unscored) == ("not testable", None, [1])
    _evaluated(quiet_lab, [run_id for run_id in run_ids if seeds[run_id] == 1])
    (found,) = compare(planned(quiet_lab.context.ledger, selection, plan), plan).comparisons
    assert found.look == 5


def test_ones_own_metric_that_runs_were_trained_without_is_waited_for(
    quiet_lab: Lab,
) -> None:
    (quiet_lab.folder / "balanced.py").write_text((EXAMPLES / "balanced.py").read_text())
    own = '{metric: balanced_accuracy}\ndata: {metrics: ["balanced.py:balanced_accuracy"]}'
    run_ids = _finished(quiet_lab, _grid(own, heads=TWO, seeds="3"))
    selection = parse_selection(["tiny"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING)
    _evaluated(quiet_lab, run_ids[:4], "balanced_accuracy")
    cells = planned(quiet_lab.context.ledger, selection, plan)
    (found,) = compare(cells, plan).comparisons
    assert (found.detail, found.p) == ("4 of 6 declared runs are scored", None)
    assert not any(cell.marked.best or cell.marked.like_best for cell in cells)


def test_heads_are_not_ranked_over_datasets_while_a_declared_comparison_waits(
    quiet_lab: Lab,
) -> None:
    text = _grid("{metric: knn20}", heads=TWO, seeds="3").replace("[digits]", "[digits, digits300]")
    run_ids = _finished(quiet_lab, text)
    selection = parse_selection(["tiny"])
    ledger, workspace = quiet_lab.context.ledger, quiet_lab.context.workspace
    plan = settle(ledger, selection, NOTHING)
    _evaluated(quiet_lab, run_ids[:-1])
    assert gather(ledger, workspace, selection, plan).ranks == []
    _evaluated(quiet_lab, run_ids[-1:])
    assert gather(ledger, workspace, selection, plan).ranks


def test_a_declared_metric_may_be_named_before_anything_is_scored_by_it(quiet_lab: Lab) -> None:
    _finished(quiet_lab, _grid("{metric: knn20}", heads=TWO, seeds="3"))
    selection = parse_selection(["tiny"])
    plan = settle(quiet_lab.context.ledger, selection, NOTHING | {"metric": "knn20"})
    assert plan.declared
    with pytest.raises(BadInput, match="--metric knn10: unknown"):
        settle(quiet_lab.context.ledger, selection, NOTHING | {"metric": "knn10"})


def test_a_comparison_follows_the_declaration_unless_the_command_says_otherwise(
    quiet_lab: Lab,
) -> None:
    _declared(quiet_lab, _grid("{test: paired, metric: loss, margin: 0.2}"))
    plan = _plan(quiet_lab)
    assert (plan.test, plan.metric, plan.set, plan.margin) == (Test.PAIRED, "loss", "test", 0.2)
    assert plan.declared and _plan(quiet_lab, test="paired").declared
    other = _plan(quiet_lab, test="welch")
    assert (other.test, other.metric, other.declared) == (Test.WELCH, "loss", [])
    assert "Post hoc" in declaration_notes(other.declared)[0]


def test_a_grid_keeps_its_declaration_where_a_newer_one_shares_its_runs(quiet_lab: Lab) -> None:
    _declared(quiet_lab, _grid("{test: paired}", name="older"))
    _declared(quiet_lab, _grid(None, name="newer"))
    older = settle(quiet_lab.context.ledger, Selection(names=("older",)), NOTHING)
    assert older.test is Test.PAIRED and older.declared
    newer = settle(quiet_lab.context.ledger, Selection(names=("newer",)), NOTHING)
    assert not newer.declared


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "top2"}, "--metric top2: unknown. .*Allowed: .*top1"),
        ({"set": "tset"}, "--set tset: unknown. Did you mean 'test'.*Allowed: test"),
    ],
)
def test_a_metric_or_set_that_nothing_was_scored_by_is_told(
    quiet_lab: Lab, given: dict[str, Any], message: str
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1"))
    assert _plan(quiet_lab, **given), "nothing was scored yet: any name may come"
    quiet_lab.tick()
    journal(quiet_lab, run_id, 1, started(), scored(91.5), ended("completed"))
    quiet_lab.tick()
    with pytest.raises(BadInput, match=message):
        _plan(quiet_lab, **given)


def test_runs_of_several_grids_have_no_common_declaration(quiet_lab: Lab) -> None:
    _declared(quiet_lab, _grid("{test: paired}"))
    _declared(quiet_lab, _grid("{test: paired}", name="other", epochs=3))
    assert _plan(quiet_lab) == ComparisonPlan()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"test": "student"}, "--test student"),
        ({"margin": -1.0}, "--margin -1"),
        ({"min_effect": 0.0}, "--min-effect 0"),
    ],
)
def test_a_plan_that_cannot_be_is_told(quiet_lab: Lab, given: dict[str, Any], message: str) -> None:
    quiet_lab.submit(tiny_grid())
    with pytest.raises(BadInput, match=message):
        _plan(quiet_lab, **given)


def test_a_declaration_of_an_older_version_is_no_other_one_for_a_field_that_came_since(
    lab: Lab,
) -> None:
    lab.submit(_grid("{alpha: 0.05}"))
    lab.finish()
    stored = _declared(lab, _grid("{alpha: 0.05}"))
    (place,) = lab.context.workspace.grids.glob("*/grid.json")
    plain = json.loads(place.read_text())
    del plain["declarations"][0]["compare"]["looks"]
    place.write_text(json.dumps(plain))
    older = read_grid(lab.context.workspace, plain["grid_id"])
    assert older is not None
    lab.context.ledger.add_grid(older)
    assert _declared(lab, _grid("{alpha: 0.05}")) == stored
    assert _plan(lab).declared == stored


def test_asked_for_at_any_time_a_declared_plan_leaves_its_margin_out(quiet_lab: Lab) -> None:
    _declared(quiet_lab, _grid("{test: paired, margin: 0.5}"))
    found = _plan(quiet_lab, anytime=True)
    assert (found.anytime, found.margin, found.test, found.declared) == (
        True,
        None,
        Test.PAIRED,
        [],
    )


def test_the_epoch_that_counts_and_what_shares_alpha_are_declared_too(quiet_lab: Lab) -> None:
    _declared(
        quiet_lab,
        _grid("{select: ema_last, family: dataset, on_diverged: chance}", train="ema_decay: 0.9"),
    )
    found = _plan(quiet_lab)
    assert (found.select, found.metric, found.family) == (
        Select.EMA_LAST,
        "ema_top1",
        Family.DATASET,
    )
    assert found.on_diverged is OnDiverged.CHANCE and found.declared
    assert not _plan(quiet_lab, select="last").declared


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"select": "best"}, "--select best: unknown"),
        ({"family": "all"}, "--family all: unknown"),
        ({"family": "screen", "anytime": True}, "family: screen cannot be combined"),
        ({"on_diverged": "drop"}, "--on-diverged drop: unknown"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    quiet_lab: Lab, given: dict[str, Any], says: str
) -> None:
    _declared(quiet_lab, _grid(None))
    with pytest.raises(BadInput, match=says):
        _plan(quiet_lab, **given)


def test_averaged_weights_must_be_there_to_be_declared(quiet_lab: Lab) -> None:
    with pytest.raises(BadInput, match=r"compare\.select: ema_last needs averaged"):
        quiet_lab.prepare(_grid("{select: ema_last}"))


def test_a_declaration_of_an_older_version_stays_what_it_was(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vtjobs.analysis.findings import declared

    (found,) = _declared(quiet_lab, _grid("{test: paired, looks: [3, 5]}"))
    plain = to_plain(found.compare)
    kept = {
        name: plain[name]
        for name in ("test", "alpha", "margin", "min_effect", "metric", "set", "looks")
    }
    compare = from_plain(kept | {"baseline": "supervised"}, CompareSettings)
    older = changed(found, compare=compare)
    monkeypatch.setattr(declared, "_declared", lambda *_: [older])
    for given in ({}, {"select": "last"}, {"family": "table", "on_diverged": "suppress"}):
        plan = _plan(quiet_lab, **given)
        assert plan.looks == (3, 5) and plan.declared


def test_a_stage_that_others_start_from_is_not_what_is_compared(quiet_lab: Lab) -> None:
    stages = """\
stages:
  - {name: pretrain, heads: [supervised, relvit]}
  - {name: finetune, heads: [supervised], init_from: pretrain}
compare: {alpha: 0.05}"""
    text = tiny_grid(extra=stages).replace("heads: [supervised]\n", "", 1)
    run_ids = quiet_lab.submit(text)
    quiet_lab.tick()
    begun = [run_id for run_id in run_ids if quiet_lab.state(run_id) == "queued"]
    for run_id in begun:
        journal(quiet_lab, run_id, 1, started(), scored(90.0), ended("completed"))
    quiet_lab.tick()
    (found,) = _declared(quiet_lab, text)
    assert (len(run_ids), len(begun)) == (8, 4)
    assert sum(len(part.cells) for part in found.design) == 2, "those that are fine-tuned"
    wider = text.replace("seeds: 2", "seeds: 3")
    assert _declared(quiet_lab, wider)[-1].change is Change.DECLARED

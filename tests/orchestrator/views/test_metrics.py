"""Metrics in Prometheus' text format, read back by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from vtjobs.db.scheduler_notes import note_away
from vtjobs.jobs.errors import SchedulerUnreachable
from vtjobs.orchestrator.views.metrics import Family, as_text, families

from ...support.grids import tiny_grid
from ...support.lab import Lab


def samples(lab: Lab) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = as_text(families(lab.context))
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_runs_are_counted_by_grid_and_state(quiet_lab: Lab, runs: list[str]) -> None:
    found = samples(quiet_lab)["vtjobs_runs"]
    assert sum(count for _, count in found) == len(runs)
    assert {labels["state"] for labels, _ in found} >= {"completed", "failed"}
    assert all(labels["grid"].startswith("tiny-") for labels, _ in found)


def test_failed_runs_are_counted_by_class(quiet_lab: Lab, runs: list[str]) -> None:
    assert samples(quiet_lab)["vtjobs_failed_runs"] == [({"class": "user_error"}, 1.0)]


def test_hours_stand_by_what_came_of_them(quiet_lab: Lab, runs: list[str]) -> None:
    outcomes = {labels["outcome"] for labels, _ in samples(quiet_lab)["vtjobs_gpu_hours"]}
    assert outcomes == {"useful", "lost", "failed", "superseded"}


def test_no_series_is_by_run(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="50"))
    assert sum(map(len, samples(quiet_lab).values())) < 10


def test_a_run_that_two_grids_have_counts_once(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(name="one", seeds="2"))
    quiet_lab.submit(tiny_grid(name="two", seeds="3"))
    found = samples(quiet_lab)["vtjobs_runs"]
    assert sum(count for _, count in found) == 3


def test_a_scheduler_that_cannot_be_asked_is_a_figure(quiet_lab: Lab) -> None:
    quiet_lab.submit(tiny_grid(seeds="1"))
    name = "vtjobs_scheduler_unreachable"
    labels = {"backend": "local", "cluster": ""}
    assert samples(quiet_lab)[name] == [(labels, 0.0)]
    note_away(quiet_lab.context.ledger, "local", SchedulerUnreachable("no answer"))
    assert samples(quiet_lab)[name] == [(labels, 1.0)]


def test_an_empty_workspace_has_metrics_too(quiet_lab: Lab) -> None:
    found = samples(quiet_lab)
    assert found["vtjobs_runs"] == [] and found["vtjobs_damaged_journals"] == [({}, 0.0)]


def test_labels_are_escaped() -> None:
    hostile = 'a"b\\c\nd'
    text = as_text([Family("vtjobs_x", "Of a test.", [({"name": hostile}, 1.0)])])
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"name": hostile}

"""From records to runs: which column is what, and what cannot be taken."""

from pathlib import Path
from typing import Any

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.imports.layout import Layout, axes_of, metrics_of, names_in_paths, pairs, scales_of
from vtjobs.jobs.imports.record import Record
from vtjobs.jobs.imports.runs import FoundRun, Key, runs_of

VIT = {"backbone": "vit", "dataset": "pets", "head": "supervised", "seed": "0"}


def record(
    *, at: int = 2, epoch: int | None = None, source: str = "r.csv", **values: Any
) -> Record:
    given = {name: value for name, value in {**VIT, **values}.items() if value is not None}
    return Record(where=f"r.csv:{at}", source=Path(source), values=given, epoch=epoch)


def only(found: dict[Key, FoundRun]) -> tuple[Key, FoundRun]:
    (pair,) = found.items()
    return pair


def refused(*records: Record, layout: Layout = Layout()) -> list[str]:
    with pytest.raises(BadInput) as caught:
        runs_of(records, layout)
    return [str(problem) for problem in caught.value.problems]


def test_columns_that_are_named_like_metrics_are_taken() -> None:
    key, run = only(runs_of([record(top1="71.5", loss="0.9", lr="0.1")], Layout()))
    assert key == Key(("vit", "pets", "supervised", "imported"), (), 0)
    assert run.scores == {(0, ("test", "top1")): 71.5, (0, ("test", "loss")): 0.9}


def test_the_set_of_a_metric_stands_before_it_or_in_a_column() -> None:
    _, run = only(runs_of([record(**{"val/top1": "60", "ema_top1": "61"}, set="v2")], Layout()))
    assert run.scores == {(0, ("val", "top1")): 60, (0, ("v2", "ema_top1")): 61}


def test_a_table_may_have_a_line_for_each_value() -> None:
    lines = [record(metric="mAP", value="50", epoch=1), record(metric="mAP", value="60", epoch=2)]
    _, run = only(runs_of(lines, Layout()))
    assert run.scores == {(1, ("test", "mAP")): 50, (2, ("test", "mAP")): 60}
    assert run.last_epoch == 2


def test_columns_values_metrics_scales_and_axes_are_as_asked_for() -> None:
    layout = Layout(
        columns={"backbone": "model"},
        values={"dataset": "cars", "recipe": "deit"},
        metrics=metrics_of(["top1=acc", "val/top1=val_acc"]),
        scales={"top1": 100.0},
        axes=("lr",),
        seed_offset=10,
    )
    one = record(backbone=None, model="swin", acc="0.5", val_acc=0.25, lr=0.1, seed="1.0")
    key, run = only(runs_of([one], layout))
    assert key == Key(("swin", "cars", "supervised", "deit"), (("lr", "0.1"),), 11)
    assert run.scores == {(0, ("test", "top1")): 50, (0, ("val", "top1")): 25}


def test_names_are_read_from_the_ends_of_paths() -> None:
    layout = Layout(names=names_in_paths("{backbone}-{dataset}/seed{seed}"))
    bare = dict.fromkeys(("backbone", "dataset", "seed"))
    for source in ("out/swin-cars/seed7", "out/swin-cars/seed7.csv", "out/swin-cars/seed7/log.txt"):
        key, _ = only(runs_of([record(**bare, top1="5", source=source)], layout))
        assert (key.labels[:2], key.seed) == (("swin", "cars"), 7)


def test_a_path_of_another_kind_is_named() -> None:
    layout = Layout(names=names_in_paths("{backbone}/seed{seed}"))
    (message,) = refused(record(seed=None, top1="5", source="vit/mean"), layout=layout)
    assert message.startswith("r.csv:2: the path does not end as --path says. Or leave such")


@pytest.mark.parametrize("pattern", ["seed", "{seed}/{seed}", ""])
def test_a_pattern_has_names_each_once(pattern: str) -> None:
    with pytest.raises(BadInput, match="names in braces are expected, each once"):
        names_in_paths(pattern)


def test_what_is_not_finite_makes_a_run_that_diverged() -> None:
    _, run = only(runs_of([record(top1="nan"), record(at=3, loss="inf")], Layout()))
    assert run.diverged and not run.scores


def test_all_labels_that_are_missing_are_named_once() -> None:
    lines = [record(at=at, backbone=None, seed=None, top1="5") for at in (2, 3)]
    (message,) = refused(*lines)
    assert message.startswith("r.csv:2: no backbone, seed. Name its column: --column backbone=")
    assert "Columns: dataset, head, top1" in message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "two"}, "seed: a number is expected, got 'two'"),
        ({"seed": "1.5"}, "seed: whole number 0…"),
        ({"seed": "nan"}, "seed: whole number 0…"),
        ({"ep": "-1"}, "epoch: whole number 0…"),
        ({"top1": "high"}, "test/top1: a number is expected, got 'high'"),
        ({"head": "x" * 500}, "head: 1…200 characters are expected, got 500"),
        ({"../x/top1": "5"}, "'../x' is no name of a set or a metric"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(
    values: dict[str, str], message: str
) -> None:
    layout = Layout(columns={"epoch": "ep"})
    sound = record(at=3, seed="7", ep="1", top1="6")
    (found,) = refused(record(**{"top1": "5", **values}), sound, layout=layout)
    assert found.startswith(f"r.csv:2: {message}")


def test_two_scores_of_one_epoch_are_refused_with_what_tells_them_apart() -> None:
    (message,) = refused(record(top1="5", lr="0.1"), record(at=3, top1="6", lr="0.2"))
    assert message.startswith("r.csv:3: test/top1 of seed 0 stands at r.csv:2, too")
    assert "They differ in lr. Tell them apart: --axis COLUMN" in message
    (message,) = refused(record(top1="5"), record(at=3, top1="6"))
    assert "Remove one of them" in message


def test_fractions_are_no_percent() -> None:
    assert refused(record(top1="0.7")) == [
        "top1 is at most 0.7: a fraction, and vtjobs has percent. Give --scale top1=100"
    ]
    assert "percent are 0…100" in refused(record(top1="7000"))[0]


def test_without_a_metric_the_columns_are_named() -> None:
    (message,) = refused(record(accuracy="70"))
    assert "no metric was found. Name one: --metric top1=COLUMN. Columns: accuracy" in message


def test_many_mistakes_end_in_one_line() -> None:
    lines = [record(at=number, seed=f"s{number}", top1="5") for number in range(30)]
    found = refused(*lines)
    assert len(found) == 9 and found[-1] == "and more of the kind"


@pytest.mark.parametrize("given", ["head", "=x", "head=", "hed=x"])
def test_an_option_is_a_pair_with_a_known_name(given: str) -> None:
    with pytest.raises(BadInput, match=f"--column {given}"):
        pairs([given], "--column", ("head",))


def test_a_metric_without_a_set_is_of_the_record_s_own() -> None:
    layout = Layout(columns={"set": "split"}, metrics=metrics_of(["top1=acc"]))
    lines = [record(split="val", acc="80"), record(at=3, split="test", acc="70")]
    _, run = only(runs_of(lines, layout))
    assert run.scores == {(0, ("val", "top1")): 80, (0, ("test", "top1")): 70}


def test_two_columns_of_one_metric_are_refused() -> None:
    (message,) = refused(record(**{"test/top1": "70", "top1": "99"}))
    assert "test/top1 stands in test/top1 and in top1. Say which counts" in message


def test_a_line_that_failed_is_not_lost_beside_one_of_the_same_seed() -> None:
    for first, second in (({}, {"top1": "71"}), ({"top1": "71"}, {}), ({}, {})):
        lines = [
            record(lr="0.1", **first),
            record(at=3, lr="0.2", **second),
            record(seed="9", top1="5"),
        ]
        (message,) = refused(*lines)
        assert message.startswith("r.csv:3: seed 0 stands at r.csv:2, too. They differ in lr")


def test_a_missing_value_of_a_long_table_is_no_second_run() -> None:
    lines = [record(metric="top1", value="70"), record(at=3, metric="top5")]
    _, run = only(runs_of(lines, Layout()))
    assert run.scores == {(0, ("test", "top1")): 70}


def test_the_metrics_of_a_long_table_have_sets_and_other_names() -> None:
    lines = [record(metric="val/Acc@1", value="70"), record(at=3, metric="val/top5", value="90")]
    layout = Layout(metrics=metrics_of(["val/top1=val/Acc@1"]))
    assert only(runs_of(lines, layout))[1].scores == {(0, ("val", "top1")): 70}
    _, run = only(runs_of(lines[1:], Layout()))
    assert run.scores == {(0, ("val", "top5")): 90}


@pytest.mark.parametrize(
    ("layout", "option"),
    [
        (Layout(columns={"recipe": "recpie"}), "--column recipe=recpie"),
        (Layout(metrics=metrics_of(["top5=nosuch"])), "--metric top5=nosuch"),
        (Layout(axes=("learnrate",)), "--axis learnrate"),
    ],
)
def test_a_named_column_that_is_not_there_is_refused(layout: Layout, option: str) -> None:
    (message,) = refused(record(top1="5"), layout=layout)
    assert message.startswith(f"{option}: there is no such column. ")


def test_a_scale_of_no_metric_is_refused() -> None:
    (message,) = refused(record(top1="5"), layout=Layout(scales={"mIoU": 100.0}))
    assert message.startswith("--scale mIoU: there is no such metric")


@pytest.mark.parametrize("factor", ["nan", "1e999", "0", "-1", "x"])
def test_a_scale_is_a_number_above_0(factor: str) -> None:
    with pytest.raises(BadInput, match="a number above 0 is expected"):
        scales_of([f"top1={factor}"])


def test_an_axis_is_no_label() -> None:
    with pytest.raises(BadInput, match="--axis head: cells differ by it anyway"):
        axes_of(["head"])


def test_the_name_of_a_loss_is_no_score() -> None:
    _, run = only(runs_of([record(loss="bce", top1="70")], Layout()))
    assert run.scores == {(0, ("test", "top1")): 70}


@pytest.mark.parametrize(
    "value", ["1.7976931348623157e308", "-1e200", 10**400], ids=["max", "low", "digits"]
)
def test_numbers_that_no_mean_can_hold_are_not_finite(value: Any) -> None:
    _, run = only(runs_of([record(loss=value, top1="70")], Layout()))
    assert run.diverged and (0, ("test", "loss")) not in run.scores


@pytest.mark.parametrize("step", [-1, 5_000_000_000])
def test_a_step_that_is_no_epoch_is_refused(step: int) -> None:
    (message,) = refused(record(top1="5", epoch=step))
    assert message.startswith("r.csv:2: epoch: whole number 0…2147483647 is expected")

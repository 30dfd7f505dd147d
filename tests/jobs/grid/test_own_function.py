"""A lab's own loss and transform: found, read and checked without being run."""

from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import fidelity
from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.load import take_in

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
GRID = """\
name: own
backbones: [vit_mini]
datasets: [digits]
heads: {heads}
seeds: 1
recipe: {recipe}
train: {train}
{more}
"""
GREY = '{pipeline: pil, transform: {"random_grey.py:RandomGrey": {probability: 0.5}}}'


def _expand(
    folder: Path,
    train: str = "{}",
    *,
    more: str = "",
    recipe: str = "quickstart",
    heads: str = "[supervised]",
) -> Expansion:
    for name in ("focal.py", "random_grey.py", "balanced.py"):
        if not (folder / name).exists():
            (folder / name).write_text((EXAMPLES / name).read_text())
    path = folder / "grid.yaml"
    text = GRID.replace("{recipe}", recipe).replace("{train}", train).replace("{heads}", heads)
    path.write_text(text.replace("{more}", more))
    return take_in(str(path)).expansion


def test_source_and_arguments_are_part_of_the_run(tmp_path: Path) -> None:
    (plain,) = _expand(tmp_path).cells
    (cell,) = _expand(tmp_path, '{loss: {"focal.py:focal": {gamma: 1.5}}}').cells
    recipe = cell.spec.settings.recipe
    assert recipe.loss == "own" and recipe.own_loss is not None
    assert (recipe.own_loss.name, recipe.own_loss.args) == ("focal", {"gamma": 1.5})
    assert recipe.own_loss.source == (EXAMPLES / "focal.py").read_text()
    (other,) = _expand(tmp_path, GREY).cells
    assert other.spec.settings.recipe.transform is not None
    assert len({plain.cell_id, cell.cell_id, other.cell_id}) == 3


def test_a_loss_that_training_without_labels_would_never_call_is_refused(tmp_path: Path) -> None:
    alone = "[{relvit: {labels: false}}]"
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, '{loss: "focal.py:focal"}', heads=alone)
    assert "the lab's own loss is of labels, and relvit trains without any" in str(caught.value)
    assert _expand(tmp_path, heads=alone).cells


def test_a_loss_may_be_an_axis_and_belong_to_a_recipe_of_ones_own(tmp_path: Path) -> None:
    found = _expand(tmp_path, more='axes: {train.loss: [cross_entropy, "focal.py:focal"]}')
    assert [cell.spec.settings.recipe.loss for cell in found.cells] == ["cross_entropy", "own"]
    own = 'recipes: {sharp: {extends: quickstart, loss: "focal.py:focal"}}'
    (cell,) = _expand(tmp_path, more=own, recipe="sharp").cells
    assert cell.cell_id == found.cells[1].cell_id


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ('{loss: "nowhere.py:focal"}', "train.loss: loss: "),
        ('{loss: "focal.py:local"}', "no class or function 'local'. Did you mean 'focal'?"),
        ('{loss: {"focal.py:focal": {gama: 1}}}', "unknown key 'gama'. Did you mean 'gamma'?"),
        ('{loss: {"focal.py:focal": 3}}', "arguments must be finite numbers"),
        ('{loss: "random_grey.py:RandomGrey"}', "must take 2 arguments by place"),
        ('{transform: "random_grey.py:RandomGrey"}', "transform needs `pipeline: pil`"),
        ("{pipeline: pil, transform: blur}", "write file.py:Name"),
        ("{loss: own}", "must be 'cross_entropy' or 'bce'"),
    ],
)
def test_what_is_no_loss_or_transform_is_told_with_the_line_of_the_grid(
    tmp_path: Path, train: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, train)
    (problem,) = caught.value.problems
    assert says in str(problem) and problem.line == 7


def test_show_names_them_without_their_source(tmp_path: Path) -> None:
    (cell,) = _expand(tmp_path, GREY).cells
    settings = cell.spec.settings
    found = {
        one.name: one.value
        for one in fidelity.of_recipe(settings.recipe, "quickstart", settings.dataset)
    }
    assert found["transform"] == "RandomGrey"


def test_metrics_are_no_part_of_a_run_and_go_with_the_grid(tmp_path: Path) -> None:
    plain = _expand(tmp_path)
    found = _expand(tmp_path, more='data: {metrics: ["balanced.py:balanced_accuracy"]}')
    assert found.runs == plain.runs
    (metric,) = found.metrics
    assert (metric.name, metric.source) == (
        "balanced_accuracy",
        (EXAMPLES / "balanced.py").read_text(),
    )


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ('["balanced.py:balanced"]', "Did you mean 'balanced_accuracy'?"),
        ("[recall]", "write file.py:Name"),
        ('["mine.py:top1"]', "top1 is a metric of vtjobs. Rename the function"),
        ('["mine.py:ema_score"]', "ema_score is a metric of vtjobs"),
        ('["mine.py:knn20"]', "knn20 is a metric of vtjobs"),
        ('["mine.py:one"]', "must take 2 arguments by place"),
        (
            '["balanced.py:balanced_accuracy", "balanced.py:balanced_accuracy"]',
            "balanced_accuracy is listed twice",
        ),
    ],
)
def test_what_is_no_metric_is_told_with_the_line_of_the_grid(
    tmp_path: Path, metrics: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "def top1(logits, labels): pass\ndef one(logits): pass\n"
        "def ema_score(logits, labels): pass\ndef knn20(logits, labels): pass\n"
    )
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, more=f"data: {{metrics: {metrics}}}")
    (problem,) = caught.value.problems
    assert says in str(problem) and problem.line == 8


def test_a_class_without_init_takes_no_arguments_and_a_dataclass_its_fields(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "class Plain:\n    def __call__(self, image): return image\n"
        "@dataclass\nclass Kept:\n    level: int = 3\n"
    )
    for value in ('"mine.py:Plain"', '{"mine.py:Kept": {level: 2}}'):
        assert _expand(tmp_path, f"{{pipeline: pil, transform: {value}}}").runs
    with pytest.raises(BadInput, match="unknown key 'level'"):
        _expand(tmp_path, '{pipeline: pil, transform: {"mine.py:Plain": {level: 2}}}')


def test_a_grid_compares_by_a_metric_that_its_sets_are_scored_by(tmp_path: Path) -> None:
    own = 'data: {metrics: ["balanced.py:balanced_accuracy"]}\ncompare: {metric: METRIC}'
    for metric in ("balanced_accuracy", "ema_balanced_accuracy", "top1", "loss"):
        assert _expand(tmp_path, more=own.replace("METRIC", metric)).runs
    with pytest.raises(BadInput, match=r"no set is scored by 'balanced'.*balanced_accuracy"):
        _expand(tmp_path, more=own.replace("METRIC", "balanced"))

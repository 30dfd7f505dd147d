"""Grid -> runs: what multiplies, what is left out, and what decides a run's id."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import resolve_dataset
from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.image_folder import describe_folder
from vtjobs.jobs.grid.load import take_in_document
from vtjobs.jobs.grid.recipe import Recipe
from vtjobs.jobs.grid.schema import Grid
from vtjobs.jobs.run.spec import STREAMS, RunSpec, canonical, seeds_of
from vtjobs.jobs.strict_yaml import Document

BASE: dict[str, Any] = {
    "name": "small",
    "backbones": ["vit_mini", "swin_mini"],
    "datasets": ["digits", "cifar10"],
    "heads": ["supervised", {"drloc": {"weight": 0.5}}, "relvit"],
    "seeds": 2,
    "recipe": "quickstart",
}


def grid(**changes: Any) -> Expansion:
    """Expand the base grid with some keys changed; None takes a key away."""
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    return take_in_document(Document(file="grid.yaml", data=json.loads(json.dumps(data)))).expansion


def run_ids(expansion: Expansion) -> set[str]:
    return {run.run_id for run in expansion.runs}


def rows(expansion: Expansion) -> list[tuple[str, str, str, int]]:
    labels = [expansion.cells[run.cell].labels for run in expansion.runs]
    return [
        (label["backbone"], label["dataset"], label["head"], run.seed)
        for label, run in zip(labels, expansion.runs, strict=True)
    ]


def spec_of(expansion: Expansion, index: int = 0) -> RunSpec:
    run = expansion.runs[index]
    seeds = canonical(seeds_of(run.seed))
    return RunSpec.parse(expansion.cells[run.cell].spec.text(seeds=seeds, init_from=run.parent))


def some(names: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(names), min_size=1, unique_by=str)


@pytest.mark.paper("OR-01")
@given(
    some(["vit_mini", "swin_mini", "resnet50"]),
    some(["digits", "cifar10", "cifar100"]),
    some(["supervised", "relvit", {"drloc": {"weight": 0.5}}]),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4, unique=True),
)
def test_a_grid_is_the_product_of_its_axes(
    backbones: Any, datasets: Any, heads: Any, seeds: Any
) -> None:
    found = rows(grid(backbones=backbones, datasets=datasets, heads=heads, seeds=seeds))
    names = [head if isinstance(head, str) else "drloc" for head in heads]
    assert len(found) == len(set(found))
    assert set(found) == set(itertools.product(backbones, datasets, names, seeds))


@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing_and_that_of_lists_only_the_order(
    shuffle: random.Random,
) -> None:
    keys = list(BASE)
    shuffle.shuffle(keys)
    same = take_in_document(Document(file="f", data={key: BASE[key] for key in keys})).expansion
    assert same.runs == grid().runs
    lists = {
        key: shuffle.sample(BASE[key], len(BASE[key])) for key in ("backbones", "datasets", "heads")
    }
    other = grid(**lists)
    assert run_ids(other) == run_ids(same)
    assert other.grid_hash == same.grid_hash


def test_an_expansion_has_no_run_twice_even_where_its_parts_overlap() -> None:
    include = [
        {
            "backbone": ["vit_mini", "resnet50"],
            "dataset": "digits",
            "head": "supervised",
            "seed": [0, 1, 2],
        }
    ]
    found = grid(include=include)
    assert len(found.runs) == len(run_ids(found)) == 24 + 1 + 3


def test_the_name_in_the_ledger_is_the_hash_of_the_spec() -> None:
    found = grid()
    for index, run in enumerate(found.runs):
        assert spec_of(found, index).run_id == run.run_id


# What decides the weights, and what does not ------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"description": "words"},
        {
            "resources": {
                "nodes": 2,
                "gpus_per_node": 8,
                "gpu": "v100",
                "walltime": "12h",
                "threads": 4,
                "cpu_ranks": 2,
            }
        },
        {"backend": "local"},
        {"backend": {"local": {"slots": 3}}},
        {"retries": 0},
        {"checkpoint_every": "1m"},
        {"evaluate_every": 7},
        {"record_depth": True},
        {"max_running": 1},
        {"halve_micro_batch": True},
        {"compare": {"test": "paired", "alpha": 0.01, "min_effect": 0.5}},
    ],
)
def test_what_does_not_decide_the_weights_keeps_every_run(change: dict[str, Any]) -> None:
    assert run_ids(grid(**change)) == run_ids(grid())


def test_further_sets_to_score_keep_every_run_and_a_held_out_part_makes_others() -> None:
    plain = run_ids(grid(datasets=["digits300"]))
    assert run_ids(grid(datasets=["digits300"], data={"sets": ["independent"]})) == plain
    assert not run_ids(grid(datasets=["digits300"], data={"val": 0.1})) & plain


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sets": ["v2"]}, "data.sets: dataset digits has no set 'v2'"),
        ({"sets": ["../x"]}, r"data.sets\[0\]: string should match"),
        ({"sets": ["test"]}, "lists a set twice"),
        ({"val": 0.1, "sets": ["val"]}, "lists a set twice"),
        ({"val": 1.5}, "data.val: "),
        (
            {"val": 0.0001},
            "data.val: 0.0001 of digits's 899 training images is 0; both parts need at least one",
        ),
        ({"vals": 0.1}, "unknown key 'vals'"),
        (
            {"val": 0.005},
            (
                "899 training images is 4; both parts need at least one image of each of the 10"
                " classes"
            ),
        ),
    ],
)
def test_a_use_of_data_that_cannot_be_is_told(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        grid(datasets=["digits"], data=data)


def test_only_cells_and_runs_go_into_identity() -> None:
    deciding = {
        "backbones",
        "datasets",
        "heads",
        "seeds",
        "variance",
        "recipe",
        "recipes",
        "train",
        "axes",
        "exclude",
        "include",
        "overrides",
        "variants",
        "stages",
        # Of which `sets` does not.
        "data",
    }
    covered = {
        "name",
        "description",
        "resources",
        "backend",
        "retries",
        "checkpoint_every",
        "evaluate_every",
        "record_depth",
    }
    covered |= {"max_running", "halve_micro_batch", "compare"}
    assert deciding | covered == set(Grid.model_fields), (
        "a new key of the grid must be put in one of the two"
    )


EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
OTHER: dict[str, Any] = {
    "fidelity": "code", "lr_per": 48, "schedule_epochs": 60, "schedule_unit": "epoch", "schedule_lag": 1, "decay_epochs": 20, "decay_rate": 0.2, "layer_decay": 0.75, "trainable": "attention", "frozen": ["head.*"], "decay_all": True, "repeats": 3, "sync_bn": True, "classifier": "mlp", "loss": "bce", "bce_threshold": 0.2,
    "drop_path_rule": "uniform",
    "epochs": 51, "batch_size": 64, "virtual_ranks": 2, "drop_last": True, "optimizer": "sgd", "lr": 1e-4,
    "weight_decay": 0.1, "momentum": 0.8, "schedule": "constant", "warmup_epochs": 1.5, "warmup_lr": 1e-6,
    "min_lr": 1e-6, "clip_grad": None, "precision": "bf16", "tf32": True, "channels_last": True, "compile": True,
    "deterministic": True, "image_size": 32, "pipeline": "pil", "interpolation": "bicubic", "crop": "resized",
    "crop_padding": 2, "crop_scale": [0.1, 1.0], "crop_ratio": [0.5, 2.0], "flip": 0.5,
    "auto_augment": "rand-m9", "color_jitter": 0.4, "erasing": 0.25, "eval_crop_pct": 0.9, "mixup": 0.8,
    "cutmix": 1.0, "mix_prob": 0.5, "mix_switch_prob": 0.1, "label_smoothing": 0.1, "dropout": 0.1,
    "drop_path": 0.1, "ema_decay": 0.99, "ema_warmup": True,
    "transform": f"{EXAMPLES / 'random_grey.py'}:RandomGrey", "rescale": [0.75, 1.5], "decoder_width": 256, "longest_side": 1400,
}  # fmt: skip
OF_MASKS, OF_OBJECTS = ("rescale", "decoder_width"), ("longest_side",)


@pytest.mark.paper("DE-03", "OR-05")
def test_a_rate_per_batch_size_follows_the_batch_size() -> None:
    sizes = {"train.batch_size": [256, 512, 1024]}
    found = grid(heads=["supervised"], train={"lr": 0.0005, "lr_per": 512}, axes=sizes)
    recipes = [json.loads(cell.spec.recipe) for cell in found.cells]
    rates = {recipe["batch_size"]: recipe["lr"] for recipe in recipes}
    assert rates == {256: 0.00025, 512: 0.0005, 1024: 0.001}
    plain = grid(heads=["supervised"], train={"lr": 0.00025, "batch_size": 256})
    assert run_ids(plain) < run_ids(found), "the same rate is the same run"
    tenth = grid(heads=["supervised"], train={"lr": 0.1, "lr_per": 256, "batch_size": 768})
    assert run_ids(tenth) == run_ids(
        grid(heads=["supervised"], train={"lr": 0.3, "batch_size": 768})
    )


@pytest.mark.paper("CA-05")
def test_what_a_stage_takes_of_the_one_before_it_decides_the_weights() -> None:
    def ids(**train: list[str]) -> set[str]:
        second = {"name": "second", "init_from": "first", "train": train}
        return run_ids(grid(**{**ONE, "heads": ["supervised"]}, stages=[{"name": "first"}, second]))

    all_taken, norms, head = ids(), ids(init_only=["norm.*"]), ids(init_only=["head.*"])
    assert [len(one) for one in (all_taken, norms, head)] == [2, 2, 2]
    assert len(all_taken & norms & head) == 1, "the first stage is the same"
    assert len(all_taken | norms | head) == 4


@pytest.mark.parametrize("field", [name for name in Recipe.model_fields if name != "init_only"])
def test_every_field_of_the_recipe_decides_the_weights(field: str) -> None:
    train = {field: OTHER[field]}
    needs = {
        "auto_augment": {"pipeline": "pil"},
        "color_jitter": {"pipeline": "pil"},
        "bce_threshold": {"loss": "bce"},
        "transform": {"pipeline": "pil"},
    }
    common = needs.get(field, {})
    task = {"datasets": ["ade20k"], "recipe": "upernet"} if field in OF_MASKS else {}
    if field in OF_OBJECTS:
        task = {"datasets": ["coco2017"], "recipe": "mask-rcnn"}
    before, after = (
        grid(heads=["supervised"], train={**common, **more}, **task) for more in ({}, train)
    )
    assert not run_ids(before) & run_ids(after)


ONE: dict[str, Any] = {
    "backbones": ["vit_mini"],
    "datasets": ["digits"],
    "heads": [{"drloc": {"weight": 0.5}}],
    "seeds": [0],
}


@pytest.mark.parametrize(
    "change",
    [
        {"backbones": ["swin_mini"]},
        {"backbones": [{"vit_mini": {"depth": 4}}]},
        {"datasets": ["cifar10"]},
        {"datasets": [{"digits": {"mean": [0.3]}}]},
        {"heads": ["supervised"]},
        {"heads": [{"drloc": {"weight": 0.6}}]},
        {"heads": [{"drloc": {"weight": 0.5, "pairs": 32}}]},
        {"heads": [{"drloc": {"weight": 0.5, "width": 64}}]},
        {"heads": [{"drloc": {"weight": 0.5, "grid": 8}}]},
        {"seeds": [1]},
        {"recipe": "relvit-joint"},
    ],
)
def test_whatever_decides_the_weights_makes_another_run(change: dict[str, Any]) -> None:
    assert not run_ids(grid(**ONE)) & run_ids(grid(**{**ONE, **change}))


@pytest.mark.paper("DR-03", "DR-06")
def test_a_default_that_is_spelled_out_is_the_same_run() -> None:
    spelled = grid(
        **{
            **ONE,
            "heads": [{"drloc": {"weight": 0.5, "pairs": 64, "width": 512, "grid": 7}}],
            "train": {"epochs": 50},
        }
    )
    assert run_ids(spelled) == run_ids(grid(**ONE))


def test_a_number_is_the_same_however_it_is_written() -> None:
    assert run_ids(grid(train={"mixup": 1})) == run_ids(grid(train={"mixup": 1.0}))


def image_folder(root: Path, *, pixel: int = 0) -> Path:
    from PIL import Image

    for part, label in itertools.product(("train", "test"), "ab"):
        (root / part / label).mkdir(parents=True)
        Image.new("L", (4, 4), pixel).save(root / part / label / "0.png")
    return root


def test_a_folder_is_known_by_its_content_and_not_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here, copy, other = (
        image_folder(tmp_path / name, pixel=pixel)
        for name, pixel in (("here", 0), ("copy", 0), ("other", 9))
    )
    found = [run_ids(grid(**{**ONE, "datasets": [str(path)]})) for path in (here, copy, other)]
    assert found[0] == found[1]
    assert not found[0] & found[2]


def test_two_folders_of_one_name_are_two_datasets_with_labels_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folders = [
        str(image_folder(tmp_path / name / "birds", pixel=index)) for index, name in enumerate("ab")
    ]
    found = grid(**{**ONE, "datasets": folders})
    assert {row[1] for row in rows(found)} == set(folders)
    assert len({cell.spec.dataset for cell in found.cells}) == 2
    assert len(grid(**{**ONE, "datasets": folders}, exclude=[{"dataset": folders[0]}]).runs) == 1


def test_a_folder_is_read_once_however_many_recipes_stand_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read: list[Path] = []

    def counted(path: Path) -> dict[str, Any]:
        read.append(path)
        return describe_folder(path)

    monkeypatch.setitem(resolve_dataset._DESCRIBE, "classification", counted)
    folder = str(image_folder(tmp_path / "birds"))
    sizes = {"train.image_size": [16, 32, 48]}
    found = grid(**{**ONE, "datasets": [folder], "train": {"pipeline": "pil"}}, axes=sizes)
    assert (len(found.cells), len(read)) == (3, 1)


def test_weights_are_known_by_their_content_and_not_by_their_path(tmp_path: Path) -> None:
    for name, content in (("a.pt", b"1"), ("b.pt", b"1"), ("c.pt", b"2")):
        (tmp_path / name).write_bytes(content)
    started = [
        [{"vit_mini": {"weights": str(tmp_path / name)}}] for name in ("a.pt", "b.pt", "c.pt")
    ]
    a, b, c = (run_ids(grid(**{**ONE, "backbones": backbones})) for backbones in started)
    assert a == b
    assert not a & c
    assert not a & run_ids(grid(**ONE))


def test_which_tensors_weights_may_lack_is_part_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"1")
    settings = {"weights": str(path)}
    named = {**settings, "allow_missing": ["norm.*"]}
    whole, part, empty = (
        run_ids(grid(**{**ONE, "backbones": [{"vit_mini": one}]}))
        for one in (settings, named, {**settings, "allow_unused": []})
    )
    assert whole == empty and not whole & part


def test_the_labels_a_user_chose_are_no_part_of_a_run() -> None:
    # Two entries of one backbone are told apart by label; each is the run it would be alone.
    both = grid(**{**ONE, "backbones": ["vit_mini", {"vit_mini": {"depth": 4}}]})
    assert run_ids(grid(**ONE)) < run_ids(both)
    assert {row[0] for row in rows(both)} == {"vit_mini", "vit_mini(depth=4)"}


# Axes, rules, stages ------------------------------------------------------------------------------


def test_an_axis_under_one_head_multiplies_only_that_head() -> None:
    found = grid(axes={"head.drloc.pairs": [32, 64, 128]})
    count = {
        head: sum(row[2] == head for row in rows(found))
        for head in ("supervised", "drloc", "relvit")
    }
    assert count == {"supervised": 8, "drloc": 24, "relvit": 8}


def test_an_axis_under_one_backbone_or_dataset_multiplies_only_that() -> None:
    found = grid(
        axes={"backbone.vit_mini.depth": [2, 3], "dataset.digits.mean": [[0.3], [0.4]]},
        heads=["supervised"],
    )
    count = {
        key: sum(row[:2] == key for row in rows(found))
        for key in itertools.product(BASE["backbones"], BASE["datasets"])
    }
    assert count == {
        ("vit_mini", "digits"): 8, ("vit_mini", "cifar10"): 4, ("swin_mini", "digits"): 4, ("swin_mini", "cifar10"): 2,
    }  # fmt: skip


@pytest.mark.paper("DR-38", "DE-18", "DE-21")
def test_an_axis_of_the_recipe_multiplies_everything_and_sets_its_field() -> None:
    found = grid(axes={"train.lr": [1e-3, 2e-3]})
    assert len(found.runs) == 48
    assert {json.loads(cell.spec.recipe)["lr"] for cell in found.cells} == {1e-3, 2e-3}


def test_an_axis_of_recipes_takes_each_as_it_is() -> None:
    found = grid(axes={"recipe": ["quickstart", "relvit-joint"]}, heads=["supervised"])
    assert {json.loads(cell.spec.recipe)["batch_size"] for cell in found.cells} == {32, 256}


@pytest.mark.paper("OR-01")
def test_an_exclusion_takes_away_exactly_what_it_names_and_is_counted() -> None:
    found = grid(
        exclude=[
            {"backbone": "vit_mini", "dataset": "digits"},
            {"head": ["drloc", "relvit"], "seed": 1},
        ]
    )
    expected = {
        row
        for row in rows(grid())
        if row[:2] != ("vit_mini", "digits") and not (row[2] in ("drloc", "relvit") and row[3] == 1)
    }
    assert set(rows(found)) == expected
    assert found.excluded == {
        "{backbone: vit_mini, dataset: digits}": 6,
        "{head: ['drloc', 'relvit'], seed: 1}": 6,
    }


def test_an_exclusion_by_axis_reads_numbers_as_the_axis_does() -> None:
    found = grid(axes={"train.lr": [1e-3, 2e-3]}, exclude=[{"train.lr": 1e-3}])
    assert {json.loads(cell.spec.recipe)["lr"] for cell in found.cells} == {2e-3}


def test_an_override_changes_what_it_names_and_nothing_else() -> None:
    found = grid(
        overrides=[
            {"when": {"backbone": "swin_mini", "head": "drloc"}, "set": {"head.drloc.weight": 0.1}}
        ]
    )
    weights = {
        (cell.labels["backbone"], json.loads(cell.spec.head)["params"].get("weight"))
        for cell in found.cells
        if cell.labels["head"] == "drloc"
    }
    assert weights == {("vit_mini", 0.5), ("swin_mini", 0.1)}
    assert len(run_ids(found) & run_ids(grid())) == 20


def test_an_override_of_some_seeds_leaves_the_others_as_they_were() -> None:
    found = grid(
        **{**ONE, "seeds": 4}, overrides=[{"when": {"seed": [1, 3]}, "set": {"train.lr": 1e-3}}]
    )
    plain = grid(**{**ONE, "seeds": 4})
    assert {run.seed for run in found.runs if run.run_id in run_ids(plain)} == {0, 2}
    assert sorted(run.seed for run in found.runs) == [0, 1, 2, 3]


def test_a_later_override_wins() -> None:
    rules = [
        {"when": {}, "set": {"train.lr": 1e-3}},
        {"when": {"seed": 0}, "set": {"train.lr": 2e-3}},
    ]
    found = grid(**ONE, overrides=rules)
    assert spec_of(found).recipe.lr == 2e-3


def test_what_is_included_need_not_be_on_the_axes() -> None:
    found = grid(
        include=[{"backbone": "resnet50", "dataset": "cifar100", "head": "supervised", "seed": [7]}]
    )
    assert set(rows(found)) - set(rows(grid())) == {("resnet50", "cifar100", "supervised", 7)}


STAGES = [
    {"name": "pretrain", "heads": ["relvit"], "train": {"epochs": 8}},
    {
        "name": "finetune",
        "heads": ["supervised", {"drloc": {"weight": 0.5}}],
        "init_from": "pretrain",
    },
]


@pytest.mark.paper("RV-21", "OR-03")
def test_stages_are_matched_by_cell_and_seed() -> None:
    found = grid(heads=None, stages=STAGES, seeds=3)
    by_id = {run.run_id: run for run in found.runs}
    children = [run for run in found.runs if run.parent is not None]
    assert (len(found.runs), len(children)) == (12 + 24, 24)
    for run in children:
        parent, mine = found.cells[by_id[str(run.parent)].cell], found.cells[run.cell]
        assert by_id[str(run.parent)].seed == run.seed
        assert (parent.stage, mine.stage) == ("pretrain", "finetune")
        assert parent.spec.backbone == mine.spec.backbone
        assert parent.spec.dataset == mine.spec.dataset
        assert json.loads(mine.spec.recipe)["epochs"] == 50
    assert {cell.labels["head"] for cell in found.cells} == {
        "relvit",
        "relvit-then-supervised",
        "relvit-then-drloc",
    }


def test_a_stage_that_an_axis_leaves_alone_is_trained_once_for_all_of_its_values() -> None:
    found = grid(
        heads=None,
        stages=STAGES,
        axes={"train.epochs": [7, 8, 9]},
        overrides=[{"when": {"stage": "pretrain"}, "set": {"train.epochs": 20}}],
    )
    children: dict[int | None, set[tuple[str, int]]] = {}
    for cell in found.cells:
        epochs = json.loads(cell.spec.recipe)["epochs"]
        if cell.parent is not None:
            assert cell.axes == {"train.epochs": epochs}
            children.setdefault(cell.parent, set()).add((cell.labels["head"], epochs))
        else:
            assert (epochs, cell.axes) == (20, {}), "it has no value of the axis"
    heads = {"relvit-then-supervised", "relvit-then-drloc"}
    assert len(children) == len([cell for cell in found.cells if cell.parent is None])
    assert list(children.values()) == [
        {(head, epochs) for head in heads for epochs in (7, 8, 9)}
    ] * len(children)


def test_a_seed_that_is_left_out_at_one_value_is_left_out_of_its_later_stages_alone() -> None:
    found = grid(
        heads=None,
        stages=STAGES,
        axes={"train.epochs": [7, 8]},
        overrides=[{"when": {"stage": "pretrain"}, "set": {"train.epochs": 20}}],
        exclude=[{"stage": "pretrain", "train.epochs": 7, "seed": 1}],
    )
    seeds: dict[int, set[int]] = {}
    for run in found.runs:
        if run.parent is not None:
            epochs = found.cells[run.cell].axes["train.epochs"]
            seeds.setdefault(epochs, set()).add(run.seed)
    assert seeds == {7: {0}, 8: {0, 1}}


def test_students_of_all_values_of_an_axis_learn_from_a_teacher_that_it_leaves_alone() -> None:
    stages = [
        {"name": "teacher", "heads": ["supervised"]},
        {"name": "student", "heads": [{"distill": {"teacher": "teacher"}}]},
    ]
    found = grid(
        heads=None,
        backbones=["vit_mini"],
        stages=stages,
        axes={"train.epochs": [7, 8]},
        overrides=[{"when": {"stage": "teacher"}, "set": {"train.epochs": 20}}],
    )
    teachers = [cell for cell in found.cells if cell.parent is None]
    students = [cell for cell in found.cells if cell.parent is not None]
    assert len(students) == 2 * len(teachers)


def test_a_run_that_starts_from_another_is_another_run() -> None:
    chained = {run.run_id for run in grid(heads=None, stages=STAGES).runs if run.parent}
    alone = run_ids(grid(heads=STAGES[1]["heads"]))
    assert not chained & alone
    other = [{**STAGES[0], "train": {"epochs": 9}}, STAGES[1]]
    assert not chained & {run.run_id for run in grid(heads=None, stages=other).runs if run.parent}


def test_a_child_of_an_excluded_parent_is_not_made() -> None:
    found = grid(heads=None, stages=STAGES, exclude=[{"stage": "pretrain", "seed": 1}])
    assert {run.seed for run in found.runs} == {0}


def test_one_head_with_other_settings_in_another_stage_keeps_its_own() -> None:
    stages = [
        {"name": "pretrain", "heads": [{"relvit": {"tasks": ["sprel"]}}]},
        {"name": "finetune", "heads": [{"relvit": {"tasks": ["abspos"]}}], "init_from": "pretrain"},
    ]
    found = {
        cell.stage: json.loads(cell.spec.head)["params"]["tasks"]
        for cell in grid(heads=None, stages=stages).cells
    }
    assert found == {"pretrain": ["sprel"], "finetune": ["abspos"]}


@pytest.mark.paper("GR-10")
def test_a_stage_may_move_to_another_dataset() -> None:
    stages = [
        {**STAGES[0], "datasets": ["cifar100"]},
        {**STAGES[1], "datasets": ["digits", "cifar10"]},
    ]
    found = grid(heads=None, stages=stages)
    parents = {run.run_id: found.cells[run.cell].labels["dataset"] for run in found.runs}
    assert {parents[str(run.parent)] for run in found.runs if run.parent} == {"cifar100"}
    assert {found.cells[run.cell].labels["dataset"] for run in found.runs if run.parent} == {
        "digits",
        "cifar10",
    }


@pytest.mark.paper("RV-23")
def test_only_chains_without_any_auxiliary_head_are_baselines() -> None:
    found = grid(heads=None, stages=STAGES)
    assert not any(cell.is_baseline for cell in found.cells)
    plain = [{**STAGES[0], "heads": ["supervised"]}, STAGES[1]]
    assert {
        cell.labels["head"] for cell in grid(heads=None, stages=plain).cells if cell.is_baseline
    } == {
        "supervised",
        "supervised-then-supervised",
    }


@pytest.mark.paper("DR-39")
def test_a_cell_shares_its_match_with_its_baseline_alone() -> None:
    found = grid()
    groups: dict[str, set[tuple[str, str]]] = {}
    for cell in found.cells:
        groups.setdefault(cell.match_id, set()).add(
            (cell.labels["backbone"], cell.labels["dataset"])
        )
    assert len(groups) == 4
    assert all(len(group) == 1 for group in groups.values())
    assert len({cell.cell_id for cell in found.cells}) == 12


def test_a_grid_at_the_limit_is_taken_and_one_above_is_not() -> None:
    document = Document(file="f", data=BASE)
    assert len(take_in_document(document, max_runs=24).expansion.runs) == 24
    with pytest.raises(BadInput, match=r"24 runs \(limit 23; raise it with --max-runs\)"):
        take_in_document(document, max_runs=23)


def test_exclusions_may_bring_a_grid_below_the_limit() -> None:
    document = Document(file="f", data={**BASE, "exclude": [{"head": "relvit"}]})
    assert len(take_in_document(document, max_runs=16).expansion.runs) == 16
    with pytest.raises(BadInput, match=r"limit 15"):
        take_in_document(document, max_runs=15)


def test_a_whole_lab_in_one_grid_is_counted_before_it_is_gone_through() -> None:
    axes = {
        "train.lr": [n / 1e6 for n in range(1, 1001)],
        "train.weight_decay": [n / 1e3 for n in range(1000)],
    }
    with pytest.raises(BadInput, match=r"24,000,000 runs \(limit 100,000"):
        grid(axes=axes)


VARIANTS = {
    "all": {},
    "no-clip": {"train.clip_grad": None},
    "flat": {"train.lr": 1e-3, "head.drloc.pairs": 8},
}


@pytest.mark.paper("DE-13", "OR-02")
def test_each_variant_changes_its_own_settings_alone() -> None:
    found = grid(heads=["supervised", {"drloc": {"weight": 0.5}}], variants=VARIANTS)
    assert len(found.runs) == 3 * len(grid(heads=["supervised", {"drloc": {"weight": 0.5}}]).runs)
    for cell in found.cells:
        recipe, head = json.loads(cell.spec.recipe), json.loads(cell.spec.head)
        variant = cell.axes["variant"]
        assert (recipe["clip_grad"] is None) == (variant == "no-clip")
        assert (recipe["lr"] == 1e-3) == (variant == "flat")
        if head["name"] == "drloc":
            assert (head["params"]["pairs"] == 8) == (variant == "flat")


@pytest.mark.paper("CA-12", "OR-02")
def test_a_variant_adds_to_the_one_that_it_extends_and_may_take_a_change_back() -> None:
    path = {
        "plain": {},
        "short": {"train.epochs": 10},
        "and flat": {"extends": "short", "train.lr": 1e-3},
        "longer": {"extends": "and flat", "train.epochs": 20},
    }
    found = {
        cell.axes["variant"]: json.loads(cell.spec.recipe) for cell in grid(variants=path).cells
    }
    assert [found[name]["epochs"] for name in list(path)[1:]] == [10, 10, 20]
    assert found["and flat"]["lr"] == found["longer"]["lr"] == 1e-3 != found["short"]["lr"]


def test_a_variant_that_extends_an_other_is_the_run_that_it_is_when_written_out() -> None:
    short = {"train.epochs": 10}
    extending = grid(variants={"short": short, "flat": {"extends": "short", "train.lr": 1e-3}})
    assert run_ids(extending) == run_ids(
        grid(variants={"short": short, "flat": {**short, "train.lr": 1e-3}})
    )


def test_a_variant_without_changes_is_the_run_that_was_there_before() -> None:
    assert run_ids(grid()) < run_ids(grid(variants={"none": {}, "short": {"train.epochs": 10}}))


def test_a_later_stage_keeps_the_variant_and_rules_may_name_it() -> None:
    stages = [
        {"name": "pretrain", "heads": ["relvit"]},
        {"name": "finetune", "heads": ["supervised"], "init_from": "pretrain"},
    ]
    rule = [{"stage": "finetune", "variant": "flat"}]
    variants = {**VARIANTS, "flat": {"train.lr": 1e-3}}
    found = grid(heads=None, stages=stages, variants=variants, exclude=rule)
    children = [cell for cell in found.cells if cell.parent is not None]
    assert all(
        cell.axes == found.cells[cell.parent].axes for cell in children if cell.parent is not None
    )
    assert {cell.axes["variant"] for cell in children} == {"all", "no-clip"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": {"x": {"lr": 1}}}, "variants.x.lr: cannot vary 'lr'"),
        ({"variants": {"x": {"train.lrr": 1}}}, "variants.x.train.lrr: "),
        (
            {"variants": {"x": {}}, "exclude": [{"variant": "y"}]},
            "'y' is not among this grid's variants",
        ),
        ({"exclude": [{"variant": "y"}]}, "unknown key 'variant'"),
        ({"variants": {"../x": {}}}, "variants"),
        (
            {"variants": {"x": {"extends": "y"}, "y": {}}},
            "variants.x.extends: no earlier variant 'y'",
        ),
        (
            {"variants": {"x": {}, "y": {"extends": ["x"]}}},
            "variants.y.extends: no earlier variant",
        ),
    ],
)
def test_a_variant_that_cannot_be_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        grid(**changes)


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        ({"looks": [5, 3]}, r"looks: expected numbers of seeds in ascending order, got \[5, 3\]"),
        ({"looks": [2, 4]}, r"compare.looks\[0\]: "),
        ({"test": "student"}, "compare.test: "),
        ({"margin": 0.0}, "compare.margin: "),
        ({"tests": "welch"}, "unknown key 'tests'"),
    ],
)
def test_a_comparison_that_cannot_be_declared_is_told(
    compare: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        grid(compare=compare)


# Streams that vary apart --------------------------------------------------------------------------

CROSSED = {"design": "crossed", "vary": {"init": 3, "order": 2}, "hold": {"split": 1}}


def test_a_study_has_a_run_for_each_row_of_its_design_in_each_cell() -> None:
    found = grid(seeds=None, variance=CROSSED)
    assert len(found.runs) == len(run_ids(found)) == 6 * len(found.cells)
    assert [run.seed for run in found.runs[:6]] == list(range(6))
    assert found.streams[3] == dict.fromkeys(STREAMS, 0) | {"split": 1, "init": 1, "order": 1}


def test_cells_of_a_study_are_those_of_the_plain_grid() -> None:
    assert [cell.cell_id for cell in grid(seeds=None, variance=CROSSED).cells] == [
        cell.cell_id for cell in grid().cells
    ]


@given(st.integers(2, 5))
def test_where_all_streams_agree_a_studys_run_is_that_of_the_seed(levels: int) -> None:
    # All streams move together through values that no arm has.
    plain = grid(seeds={"range": [levels, 2 * levels]})
    every = {"design": "one-at-a-time", "vary": dict.fromkeys(STREAMS, levels)}
    assert run_ids(plain) <= run_ids(grid(seeds=None, variance=every))


def test_together_is_what_seeds_are() -> None:
    assert grid(variance={"design": "together"}).runs == grid().runs


def test_repeats_are_runs_of_their_own() -> None:
    assert len(run_ids(grid(seeds=None, variance=CROSSED | {"repeat": 2}))) == 2 * len(
        run_ids(grid(seeds=None, variance=CROSSED))
    )


def test_a_study_of_two_stages_goes_on_from_the_run_of_its_own_row() -> None:
    stages = [
        {"name": "first", "heads": ["supervised"]},
        {"name": "second", "heads": ["relvit"], "init_from": "first"},
    ]
    found = grid(seeds=None, heads=None, stages=stages, variance=CROSSED)
    by_id = {run.run_id: run for run in found.runs}
    children = [run for run in found.runs if run.parent is not None]
    assert len(children) == len(found.runs) / 2
    assert all(by_id[str(run.parent)].seed == run.seed for run in children)

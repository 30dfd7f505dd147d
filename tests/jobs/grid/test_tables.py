"""The built-in grids of the papers' tables expand to as many cells as the tables have."""

import itertools
import json
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.load import take_in

# cells of the table, runs of all its stages
TABLES = {
    "drloc-table2a": (5, 5), "drloc-table2b": (12, 12), "drloc-table3": (12, 36), "drloc-table4": (80, 80),
    "drloc-table5": (60, 60), "drloc-table6": (6, 6), "drloc-table7": (4, 4),
    "drloc-table8": (16, 16), "drloc-table9": (6, 6), "drloc-table10": (2, 4), "drloc-table11": (2, 4), "drloc-table12": (2, 4), "drloc-table13": (2, 4), "drloc-table14": (6, 6), "drloc-table16": (9, 9),
    "relvit-table2": (12, 120), "relvit-table3": (32, 160), "relvit-table4": (16, 32), "relvit-table5": (44, 88),
    "relvit-figure4": (5, 10),
    "thesis-seeds": (1, 100), "thesis-lowres": (17, 34), "thesis-deit3": (15, 15), "thesis-deit": (3, 3),
    "thesis-cait": (10, 10), "thesis-patchconvnet": (4, 4), "thesis-table5-8": (14, 14), "thesis-table5-7": (6, 6), "thesis-table3-8": (12, 12), "thesis-deit-384": (3, 4),
    "thesis-table3-8-384": (13, 25), "thesis-table6-4": (14, 14), "thesis-table6-3": (8, 8), "thesis-table6-2": (5, 5),
    "thesis-cifar10": (3, 3), "thesis-table6-13": (11, 11), "thesis-table3-11": (19, 19), "thesis-table3-12": (12, 12), "thesis-table3-20": (7, 7), "thesis-fixed-factors": (4, 8), "thesis-attention-pooling": (2, 2),
    "thesis-table3-13": (13, 13), "thesis-table3-21": (8, 8), "thesis-resmlp": (6, 6), "thesis-table4-3": (8, 8),
    "thesis-table2-7": (7, 35), "thesis-table2-11": (8, 40), "thesis-table2-12": (1, 1), "thesis-table2-13": (6, 30),
    "thesis-table2-14": (56, 56),
    "thesis-table2-15": (40, 44), "thesis-table2-16": (40, 44),
    "thesis-deit3-384": (3, 6),
    "thesis-distilled": (12, 12), "thesis-distilled-384": (4, 8), "thesis-cait-384": (9, 18),
    "thesis-cait-distilled": (9, 9), "thesis-cait-distilled-384": (11, 21),
    "drloc-grid-size": (4, 4), "thesis-small-distillation": (12, 60), "thesis-patchconvnet-seeds": (1, 10),
    "thesis-deit3-transfer": (18, 21), "thesis-table4-4": (12, 14),
    "thesis-table3-7": (12, 14), "thesis-table3-19": (24, 28), "thesis-table5-5": (12, 14),
}  # fmt: skip


@pytest.mark.paper(
    "DR-24",
    "DR-38",
    "DR-50",
    "DR-51",
    "DR-52",
    "DR-53",
    "DR-54",
    "DR-55",
    "DR-56",
    "DR-57",
    "DR-61",
    "DR-73",
    "DR-74",
    "DR-76",
    "RV-07",
    "RV-22",
    "RV-26",
    "RV-30",
    "RV-31",
    "RV-32",
    "RV-33",
    "RV-34",
    "RV-43",
    "RV-44",
    "GR-13",
    "DE-10",
    "DE-12",
    "CA-03",
    "CA-05",
    "CA-15",
    "PC-04",
    "PC-10",
    "PC-11",
    "PC-12",
    "D3-11",
    "D3-13",
    "D3-17",
    "OR-01",
    "OR-02",
    "OR-09",
)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_cells(name: str) -> None:
    found = take_in(name).expansion
    assert (len(found.ends()), len(found.runs)) == TABLES[name]


@pytest.mark.parametrize("name", [name for name in catalogue.grid_names() if name != "quickstart"])
def test_every_table_is_counted_here_and_says_what_it_is(name: str) -> None:
    assert name in TABLES
    assert take_in(name).grid.description


@pytest.mark.paper("DE-11")
def test_a_student_begins_with_its_own_stage_and_not_with_its_teacher() -> None:
    found = take_in("thesis-cifar10").expansion
    (student,) = [cell for cell in found.cells if "distill" in cell.spec.head]
    assert student.parent is not None and found.chain(student) == [student]
    finer = take_in("thesis-distilled-384").expansion
    assert {len(finer.chain(cell)) for cell in finer.ends()} == {2}


@pytest.mark.paper("DE-11", "OR-10")
def test_deit_on_cifar10_sees_about_as_many_images_as_on_imagenet() -> None:
    # Section 3.4.4 of the thesis: 7200 epochs stand for 300.
    seen = {
        grid: take_in(grid).expansion.ends()[0].spec.settings.images_seen
        for grid in ("thesis-cifar10", "thesis-deit")
    }
    assert seen["thesis-cifar10"] == 7200 * 49_152
    assert seen["thesis-deit"] == pytest.approx(seen["thesis-cifar10"], rel=0.1)


@pytest.mark.paper("DR-05")
def test_table_4_uses_the_papers_weight_for_each_backbone() -> None:
    found = take_in("drloc-table4").expansion
    weights = {
        cell.labels["backbone"]: json.loads(cell.spec.head)["params"]["weight"]
        for cell in found.cells
        if cell.labels["head"] == "drloc"
    }
    assert weights == {"cvt_13_drloc": 0.1, "swin_t": 0.5, "t2t_vit_14": 0.1, "resnet50_drloc": 0.1}


def test_the_everyday_use_is_one_dataset_with_seeds() -> None:
    found = take_in("drloc-table4", changes={"datasets": ["cifar10"], "seeds": 3}).expansion
    assert len(found.runs) == 4 * 2 * 3


def test_resized_crops_of_pictures_of_many_sizes_need_pillow_and_that_is_told_before_submission() -> (
    None
):
    tensors = {"train.pipeline": "tensor", "train.auto_augment": None}
    with pytest.raises(
        BadInput, match=r"train: crop: resized on images of different sizes \(sketch\) needs"
    ):
        take_in("drloc-table4", changes={**tensors, "datasets": ["sketch"]})
    assert take_in("drloc-table4", changes={**tensors, "datasets": ["svhn"]}).expansion.runs


@pytest.mark.paper("D3-07")
def test_low_resolution_comes_first_and_224_pixels_last() -> None:
    found = take_in("thesis-lowres").expansion
    sizes = {(cell.stage, json.loads(cell.spec.recipe)["image_size"]) for cell in found.cells}
    low = {126, 128, 154, 160, 182, 192}
    assert sizes == {("at224", 224), *(("lowres", size) for size in low)}


@pytest.mark.paper("D3-08")
def test_longer_training_has_more_decay_and_more_drop_path() -> None:
    cells = take_in("thesis-deit3").expansion.cells
    recipes = [cell.spec.settings.recipe for cell in cells if cell.labels["backbone"] == "deit3_b"]
    assert {(one.epochs, one.weight_decay, one.drop_path) for one in recipes} == {
        (300, 0.02, None),
        (400, 0.02, None),
        (600, 0.05, 0.15),
        (800, 0.05, 0.2),
    }


@pytest.mark.paper("D3-18", "VA-01", "OR-09")
def test_the_seed_study_has_the_seeds_1_to_100() -> None:
    assert [run.seed for run in take_in("thesis-seeds").expansion.runs] == list(range(1, 101))


@pytest.mark.paper("DR-37", "DR-51", "DR-77")
def test_table_5_starts_from_weights_in_the_data_folder(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"t2t_vit_14.safetensors: no such file. Download it once"
    ) as caught:
        take_in("drloc-table5", data_root=tmp_path)
    assert len(caught.value.problems) == 3
    (tmp_path / "weights").mkdir()
    for name in ("t2t_vit_14", "swin_tiny_patch4_window7_224.ms_in1k", "resnet50.tv_in1k"):
        (tmp_path / "weights" / f"{name}.safetensors").write_bytes(name.encode())
    found = take_in("drloc-table5", data_root=tmp_path).expansion
    weights = {json.loads(cell.spec.backbone)["weights"]["fingerprint"] for cell in found.cells}
    assert {Path(found.paths[name]).parent for name in weights} == {tmp_path / "weights"}


@pytest.mark.paper("DR-74")
def test_a_gain_at_100_epochs_stands_beside_the_one_at_300_in_table_8() -> None:
    wide, early = take_in("drloc-table8").expansion, take_in("drloc-table4").expansion
    short = {cell.cell_id for cell in wide.ends() if cell.axes["train.epochs"] == 100}
    # They are the runs of table 4.
    assert len(short) == 8 and short <= {cell.cell_id for cell in early.ends()}


@pytest.mark.paper("DE-20")
def test_students_have_a_convolutional_teacher_or_a_transformer_soft_or_hard() -> None:
    found = take_in("thesis-small-distillation").expansion
    asked = {
        (
            found.cells[cell.parent].labels["backbone"],
            cell.axes["head.distill.kind"],
            cell.labels["backbone"],
        )
        for cell in found.ends()
        if cell.parent is not None
    }
    students = ("deit_ti", "deit_ti_distilled")
    assert asked == set(itertools.product(("resnet50", "deit_s"), ("soft", "hard"), students))


@pytest.mark.paper("D3-14")
def test_flowers_of_deit_iii_trains_attention_alone_and_keeps_the_whole_image() -> None:
    for cell in take_in("thesis-deit3-transfer").expansion.ends():
        recipe = json.loads(cell.spec.recipe)
        is_flowers = json.loads(cell.spec.dataset)["name"] == "flowers102"
        assert recipe.get("trainable", "all") == ("attention" if is_flowers else "all")
        assert recipe["eval_crop_pct"] == 1.0


@pytest.mark.paper("RM-04")
def test_resmlps_contrast_is_an_old_fashioned_training() -> None:
    """Thesis, table 4.3: SGD that falls by steps over 90 epochs, and crops and flips alone."""
    cells = take_in("thesis-table4-3").expansion.ends()
    (recipe,) = [
        json.loads(cell.spec.recipe)
        for cell in cells
        if cell.axes.get("variant") == "old-fashioned"
    ]
    names = ("optimizer", "epochs", "schedule", "decay_epochs", "flip", "crop")
    assert [recipe[name] for name in names] == ["sgd", 90, "step", [30, 60], 0.5, "resized"]
    off = ("mixup", "cutmix", "erasing", "label_smoothing", "auto_augment", "warmup_epochs")
    assert not any(recipe.get(name) for name in off)


@pytest.mark.paper("OR-10")
def test_repeated_augmentation_goes_through_the_images_a_third_as_often() -> None:
    # Section 3.4.5 of the thesis: 300 epochs are a hundred passes.
    settings = take_in("thesis-deit").expansion.ends()[0].spec.settings
    assert (settings.recipe.epochs, settings.recipe.repeats) == (300, 3)
    assert settings.passes == pytest.approx(100, rel=1e-3)

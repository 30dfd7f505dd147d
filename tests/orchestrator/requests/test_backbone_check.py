"""What timm says about the backbones of a grid."""

from pathlib import Path

import pytest

from vtjobs.jobs.config.tools import ask_tool
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.backbone_facts import Facts, Question
from vtjobs.orchestrator.requests import backbone_check

from ...support.grids import TINY_BACKBONE, tiny_grid
from ...support.lab import Lab


def test_each_distinct_backbone_is_asked_about_once(quiet_lab: Lab) -> None:
    prepared = quiet_lab.prepare(tiny_grid(heads="[supervised, relvit]", seeds="5"))
    assert len(backbone_check.asked(prepared.expansion)[1]) == 1


def test_an_answer_is_remembered_and_an_error_is_not(
    quiet_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expansion = quiet_lab.prepare(tiny_grid()).expansion
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[dict[str, Question]] = []
    answers = [Facts(error="broken installation"), Facts(grid=(2, 2), width=16)]

    def describe(missing: dict[str, Question]) -> dict[str, Facts]:
        asked.append(missing)
        return dict.fromkeys(missing, answers[len(asked) - 1])

    monkeypatch.setattr(backbone_check, "_describe", describe)
    found = [
        next(iter(backbone_check.answers(backbone_check.asked(expansion)[1]).values()))
        for _ in range(3)
    ]
    assert found == [answers[0], answers[1], answers[1]]
    assert len(asked) == 2


def test_a_spatial_head_on_a_single_token_is_refused_with_the_way_out(quiet_lab: Lab) -> None:
    text = tiny_grid(heads="[drloc: {weight: 0.5}]").replace("patch_size: 8", "patch_size: 16")
    with pytest.raises(
        BadInput, match=r"1x1 token grid; head drloc needs at least 2x2. Raise train.image_size"
    ):
        quiet_lab.prepare(text)


def test_a_backbone_that_timm_cannot_make_is_named_with_its_line(quiet_lab: Lab) -> None:
    text = tiny_grid().replace(
        TINY_BACKBONE, "vit_small_patch16_224: {patch_size: 8, embed_dim: 15, num_heads: 2}"
    )
    with pytest.raises(BadInput, match=r"grid.yaml:3: backbones"):
        quiet_lab.prepare(text)


def test_an_installation_that_cannot_answer_is_one_clear_error(
    quiet_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbone_check, "ask_tool", ask_tool)
    broken = tmp_path / "broken" / "timm"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('timm is broken here')\n")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BadInput, match="timm is broken here"):
        quiet_lab.prepare(tiny_grid())


def test_a_last_share_of_one_image_is_refused_where_batch_norm_cannot_take_it(
    quiet_lab: Lab,
) -> None:
    # 899 images in batches of 449 leave one image; resnet's final map of a 16-pixel image is 1x1.
    text = tiny_grid(train="drop_last: false").replace("batch_size: 128", "batch_size: 449")
    text = text.replace(TINY_BACKBONE, "resnet18")
    with pytest.raises(BadInput, match="smallest share of a batch is one image"):
        quiet_lab.prepare(text)
    assert quiet_lab.prepare(text.replace("drop_last: false", "drop_last: true"))


def test_the_last_batch_counts_as_a_whole_where_ranks_normalise_together(quiet_lab: Lab) -> None:
    # 899 images in batches of 448 leave three: one for each of three virtual ranks.
    text = tiny_grid(train="virtual_ranks: 4, drop_last: false").replace(
        "batch_size: 128", "batch_size: 448"
    )
    text = text.replace(TINY_BACKBONE, "resnet18")
    with pytest.raises(BadInput, match="a virtual rank's smallest share of a batch is one image"):
        quiet_lab.prepare(text)
    together = text.replace("virtual_ranks: 4", "virtual_ranks: 4, sync_bn: true")
    assert quiet_lab.prepare(together)
    # Batches of 898 leave one.
    with pytest.raises(BadInput, match="the smallest batch is one image"):
        quiet_lab.prepare(
            together.replace("448", "898").replace("virtual_ranks: 4", "virtual_ranks: 2")
        )


def test_a_projector_that_has_no_place_is_refused_before_anything_is_submitted(
    quiet_lab: Lab,
) -> None:
    text = tiny_grid(heads="[grafit]").replace(
        TINY_BACKBONE,
        "deit_tiny_distilled_patch16_224: {patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}",
    )
    with pytest.raises(BadInput, match="a projector needs a linear classifier to replace"):
        quiet_lab.prepare(text)
    assert quiet_lab.prepare(text.replace("[grafit]", "[{grafit: {projector: none}}]"))


def test_attention_alone_can_be_trained_with_a_projector(quiet_lab: Lab) -> None:
    assert quiet_lab.prepare(tiny_grid(heads="[grafit]", train="trainable: attention"))


def test_weights_and_rates_of_a_head_are_not_asked_about(quiet_lab: Lab) -> None:
    text = "[{grafit: {instance_weight: 0.5}}, {grafit: {views: 2}}, {grafit: {temperature: 0.1}}]"
    prepared = quiet_lab.prepare(tiny_grid(heads=text))
    assert len(backbone_check.asked(prepared.expansion)[1]) == 1


def test_a_share_of_one_image_in_several_views_is_enough_for_a_hidden_layer(quiet_lab: Lab) -> None:
    # 899 images in batches of 449 leave one image.
    text = tiny_grid(heads="[{grafit: {views: 2}}]").replace("batch_size: 128", "batch_size: 449")
    assert quiet_lab.prepare(text)
    with pytest.raises(BadInput, match="BatchNorm on the features of grafit needs at least two"):
        quiet_lab.prepare(text.replace("views: 2", "losses: [knn]"))


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ("sync_bn: true", "shares that normalise together are not cut into micro-batches"),
        ("classifier: mlp", "train.classifier: mlp has BatchNorm"),
    ],
)
def test_what_normalises_by_a_batch_is_not_cut_into_micro_batches(
    quiet_lab: Lab, train: str, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        quiet_lab.prepare(tiny_grid(train=train, extra="halve_micro_batch: true"))


def test_a_larger_classifier_needs_two_images_in_every_share(quiet_lab: Lab) -> None:
    # 899 images in batches of 449 leave one image.
    text = tiny_grid(train="classifier: mlp").replace("batch_size: 128", "batch_size: 449")
    with pytest.raises(BadInput, match="the features of the classifier needs at least two"):
        quiet_lab.prepare(text)

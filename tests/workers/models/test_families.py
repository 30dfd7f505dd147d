"""Every family of backbones beside every head takes an optimizer step on two ranks, with no
parameter unused.
"""

from pathlib import Path

import pytest

from vtjobs.jobs.grid import heads

from ...support.families import FAMILIES, HEADS, family_spec, suits
from ...support.ranks import Ranks
from ...support.training import image_folder


def test_every_built_in_head_is_tried_beside_every_family() -> None:
    assert {name for name, _ in HEADS.values()} == heads.HEADS.keys()


@pytest.mark.paper("DR-09", "RV-13", "RV-22", "CA-11")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.training
def test_a_family_trains_beside_every_head_on_two_ranks(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = image_folder(tmp_path / "images", train=2, test=1, size=(32, 32))
    recipe = {
        "epochs": 1,
        "warmup_epochs": 0.0,
        "batch_size": 4,
        "virtual_ranks": 2,
        "image_size": 32,
    }
    for head in HEADS:
        if not suits(family, head):
            continue
        spec, paths = family_spec(family, head, root, tmp_path, **recipe)
        ended = ranks.train(
            spec, tmp_path / head, world_size=2, paths=paths, checkpoint_every_s=1e9
        )
        assert ended.statuses == [0, 0], f"{family} beside {head}: {ended.text}"
        assert [event["kind"] for event in ended.events if event["kind"] == "evaluation"] == [
            "evaluation"
        ]

"""What is odd in a grid's cells is warned of, though they can be trained."""

import pytest

from vtjobs.jobs.grid.load import take_in
from vtjobs.orchestrator.requests.submit import _warnings


def _said(grid: str, **train: object) -> list[str]:
    changes = {f"train.{name}": value for name, value in train.items()}
    return _warnings(take_in(grid, changes=changes).expansion)


def test_hardly_any_steps_in_an_epoch_are_warned_of_once() -> None:
    (said,) = _said("quickstart", batch_size=512, virtual_ranks=1)
    assert said.endswith("batch size 512 leaves only 2 optimizer step(s) per epoch")


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"decay_epochs": [8, 11]}, ["decay_epochs [8, 11]: the rate never falls in 8 epoch(s)"]),
        ({"decay_epochs": [7, 11]}, []),
        ({"decay_epochs": 30}, []),
    ],
)
def test_a_list_of_falls_that_all_come_after_the_end_is_warned_of(
    train: dict[str, object], said: list[str]
) -> None:
    assert _said("quickstart", epochs=8, schedule="step", **train) == said

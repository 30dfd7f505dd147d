"""What an unknown name is answered with."""

import pytest

from vtjobs.jobs.errors import did_you_mean, suggest
from vtjobs.jobs.run.states import RunState


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("hed", ["head", "heads_up"], "head"),
        ("gpus", ["gpu", "gpus_per_node", "nodes"], "gpus_per_node"),
        ("lr", ["grid", "seed", "train.lr"], "train.lr"),
        ("weight", ["weights_file", "weight_decay", "weight_schedule", "weights"], "weights"),
        ("Drloc", ["drloc", "relvit"], "drloc"),
    ],
)
def test_a_name_that_the_word_is_a_part_of_comes_before_one_that_is_spelled_alike(
    name: str, known: list[str], near: str
) -> None:
    assert did_you_mean(name, known) == f"Did you mean {near!r}?"


def test_a_member_of_an_enum_is_proposed_by_its_word() -> None:
    assert suggest("faild", RunState).startswith("Did you mean 'failed'? Allowed: blocked, ")


def test_no_other_number_is_proposed_for_a_number() -> None:
    assert suggest("0.1", ["0.01", "0.001"]) == "Allowed: 0.001, 0.01"


def test_nothing_is_proposed_where_nothing_is_close() -> None:
    assert did_you_mean("epochs", ["name", "seeds"]) == ""

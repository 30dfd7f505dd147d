"""The grammar that names runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.run.selector import FIELDS, Condition, Selection, parse_selection


def test_all_is_everything() -> None:
    assert parse_selection(["all"]) == Selection(everything=True)


def test_ids_and_grids_are_names_and_are_not_everything() -> None:
    assert parse_selection(["3f2a91", "quickstart"]) == Selection(names=("3f2a91", "quickstart"))


def test_conditions_alone_narrow_everything() -> None:
    found = parse_selection(["backbone=swin_t,vit_mini", "seed!=3"])
    assert found.everything
    assert found.conditions == (
        Condition(field="backbone", values=("swin_t", "vit_mini")),
        Condition(field="seed", values=("3",), negated=True),
    )


def test_conditions_narrow_the_names_beside_them() -> None:
    found = parse_selection(["quickstart", "seed=0"])
    assert (found.everything, found.names, len(found.conditions)) == (False, ("quickstart",), 1)


def test_commas_in_brackets_belong_to_a_value() -> None:
    (head, betas) = parse_selection(
        ["head=drloc(weight=0.5,mode=l1),relvit", "train.betas=[0.9,0.99],[0.9,0.999]"]
    ).conditions
    assert head.values == ("drloc(weight=0.5,mode=l1)", "relvit")
    assert betas.values == ("[0.9,0.99]", "[0.9,0.999]")


def test_a_condition_is_written_as_it_was_read() -> None:
    for word in ("train.lr!=0.1,0.2", "head=drloc(weight=0.5)"):
        (condition,) = parse_selection([word]).conditions
        assert condition.word == word


def test_status_is_another_word_for_state() -> None:
    assert parse_selection(["status=failed"]) == parse_selection(["state=failed"])


def test_no_word_is_everything_only_where_the_command_says_so() -> None:
    assert parse_selection([], default_all=True).everything
    with pytest.raises(BadInput, match="say which runs"):
        parse_selection([])


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("=x", "unknown field ''"),
        ("backbone=", "a value is missing after '='"),
        ("backbone=,", "a value is missing after '='"),
        ("status=don", "no state 'don'"),
        ("status=faild", "no state 'faild'. Did you mean 'failed'?"),
        (
            "state=held",
            "held is shown for a pending or queued run on hold. Select state=pending,queued",
        ),
        ("seed=x", "seeds are whole numbers"),
        ("seed=-1", "seeds are whole numbers"),
        ("seed=²", "seeds are whole numbers"),
        ("seed=99999999999999999999", "seeds are whole numbers"),
        ("../x", "cannot read '../x'"),
        ("a b", "cannot read 'a b'"),
        ("", "cannot read ''"),
        ("-rf", "cannot read '-rf'"),
    ],
)
def test_what_cannot_be_read_is_bad_input(word: str, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("?", r"\?")):
        parse_selection([word])


@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(FIELDS).flatmap(lambda f: st.text(max_size=5).map(lambda v: f"{f}={v}"))
    )
)
def test_any_words_are_a_selection_or_bad_input(words: list[str]) -> None:
    try:
        found = parse_selection(words)
    except BadInput:
        return
    assert found.everything or found.names
    assert all(condition.values for condition in found.conditions)

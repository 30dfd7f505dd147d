"""The strict YAML reader."""

import json
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.strict_yaml import MAX_BYTES, parse, read


def refusal(raw: str | bytes) -> str:
    with pytest.raises(BadInput) as caught:
        parse(raw.encode() if isinstance(raw, str) else raw, file="grid.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "grid.yaml: empty. For a grid file to start from: vtjobs init new-grid.yaml"),
        (
            b"# only\n# comments\n",
            "grid.yaml: empty. For a grid file to start from: vtjobs init new-grid.yaml",
        ),
        (b"---\n", "grid.yaml: empty. For a grid file to start from: vtjobs init new-grid.yaml"),
        (b"a: 1\nb: 2\nc: \xff\n", "grid.yaml:3: not valid UTF-8 (byte 0xff)"),
        ("a: 1\n".encode("utf-16"), "not valid UTF-8"),
        (b"a: 1\nb: \0\n", "grid.yaml:2: NUL byte"),
        (b"a: 1\nb:\n\tc: 1\n", "grid.yaml:3: tab used for indentation. Use spaces."),
        (b"a: 1\nb: [1, 2\n", "grid.yaml:2: '[' opened here is never closed"),
        (b"a: 1\nb: {c: 1\n", "grid.yaml:2: '{' opened here is never closed"),
        (b"a: 1\nb: [\n", "grid.yaml:2: '[' opened here is never closed"),
        (b"a: {b: [1, {c: 2}, 3\n\n", "grid.yaml:1: '[' opened here is never closed"),
        (b"a: {b: 1, c: [\n", "grid.yaml:1: '[' opened here is never closed"),
        (b"a: [1, 'x' 'y']\n", "expected ',' or ']' after"),
        (b"a: 'open\n", "grid.yaml:1: not valid YAML"),
        (b"x: 1\na: 1\x07\n", "grid.yaml:2: character '\\x07' is not allowed"),
        (b'a: "\\0"\n', "grid.yaml:1: NUL byte or unpaired surrogate"),
        (b'a: 1\n"\\ud800": 1\n', "grid.yaml:2: NUL byte or unpaired surrogate"),
        (b"a: b: c\n", "grid.yaml:1: not valid YAML"),
        (b"a: 1\n---\nb: 2\n---\nc: 3\n", "grid.yaml: 3 YAML documents, expected 1"),
        (b"a: 1\nb: 2\na: 3\n", "grid.yaml:3: 'a' given twice (first at line 1)"),
        (b"x:\n  a: 1\n  a: 2\n", "grid.yaml:3: 'a' given twice (first at line 2)"),
        (
            b"a: 1\nb: !!python/object/apply:os.system [true]\n",
            "grid.yaml:2: YAML tags are not allowed",
        ),
        (b"a: !!str 1\n", "YAML tags are not allowed"),
        (b"a: &x [1]\nb: *x\n", "grid.yaml:1: YAML anchors and aliases are not allowed"),
        (b"a: &x [*x]\n", "YAML anchors and aliases are not allowed"),
        (b"? [1]\n: 2\n", "keys must be plain text"),
        (b"[" * 30, "nested deeper than 20"),
        (b"[" * 100_000, "nested deeper than 20"),
        (b"a: " + b"9" * 5000, "number too long"),
        (b"[" + b"1," * 200_000 + b"]", "more than 100,000 values"),
        (b"#" * (MAX_BYTES + 1), "grid.yaml: too large (limit 1 MiB)"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(raw: bytes, says: str) -> None:
    assert says in refusal(raw)


def test_an_alias_bomb_is_refused_before_it_explodes() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert "anchors and aliases are not allowed" in refusal("\n".join(["a0: &a0 [x]", *levels]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E5", 1e5), (".5", 0.5), ("1.", 1.0), ("12", 12), ("-3", -3), ("+3", 3),
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("24:00:00", "24:00:00"), ("2026-01-01", "2026-01-01"), ("1e-3x", "1e-3x"),
        ("'12'", "12"), ('"true"', "true"), (".inf", math.inf), ("-.inf", -math.inf), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_a_value_is_what_a_person_sees(text: str, value: object) -> None:
    found = parse(f"v: {text}".encode(), file="f").data["v"]
    assert found == value
    assert type(found) is type(value)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n", file="f").data == {"a": 1}


def test_every_key_and_item_knows_its_line() -> None:
    document = parse(b"a:\n  - x\n  - {y: 1,\n     z: 2}\nb: 3\n", file="f")
    assert document.line(("a", 0)) == 2
    assert document.line(("a", 1, "z")) == 4
    assert document.line(("b",)) == 5
    assert document.line(("b", "missing", 3)) == 5


def test_a_path_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(BadInput, match=says):
            read(path)


def test_a_file_of_somebody_else_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(BadInput, match="permission denied"):
            read(path)
    finally:
        if root:
            os.seteuid(0)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_data_or_bad_input(raw: bytes) -> None:
    try:
        parse(raw, file="f")
    except BadInput:
        pass


YAML_BITS = st.sampled_from(
    [*"[]{}:,-?!&*#|>'\"%@`\n\t ab1", "---", "...", "\r", "é", "<<", "0x", "~"]
)


@given(st.lists(YAML_BITS, max_size=40).map("".join))
def test_almost_yaml_is_data_or_bad_input(text: str) -> None:
    try:
        parse(text.encode(), file="f")
    except BadInput as error:
        assert str(error).startswith("f")


TEXT = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=8,
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(PLAIN)
def test_what_is_written_as_plain_yaml_is_read_back(value: object) -> None:
    # JSON is the part of YAML that every version reads alike.
    assert parse(json.dumps({"v": value}, ensure_ascii=True).encode(), file="f").data == {
        "v": value
    }


def test_what_yaml_1_1_reads_differently_from_people_is_read_as_text() -> None:
    text = "a: no\nb: 012\nc: 1:30\n"
    assert yaml.safe_load(text) == {"a": False, "b": 10, "c": 90}
    assert parse(text.encode(), file="f").data == {"a": "no", "b": "012", "c": "1:30"}

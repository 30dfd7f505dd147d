"""The journal: what was written is read, a torn tail is left alone, damage is noticed."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.errors import DamagedJournal
from vtjobs.jobs.workspace.journal import JournalWriter, decode, encode, read_all, read_from

FIELDS = st.dictionaries(
    st.text(),
    st.none() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
)
EVENTS = st.lists(
    st.builds(lambda fields, seq: {**fields, "seq": seq}, FIELDS, st.integers(1, 99)),
    min_size=1,
    max_size=6,
)


@given(FIELDS)
def test_an_event_is_one_line_that_reads_back(event: dict[str, Any]) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode(line[:-1]) == event


@given(FIELDS, st.data())
def test_a_changed_bit_is_noticed(event: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(encode(event)[:-1])
    place = data.draw(st.integers(0, len(line) - 1).filter(lambda index: index != 8))
    line[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode(bytes(line))
    except ValueError:
        return
    # A digit of the checksum may change its case and nothing else.
    assert found == event and place < 8


@pytest.mark.parametrize(
    "line", [b"", b"short", b"zzzzzzzz {}", b"00000000 {}", b"-0000001 {}", b"\xff" * 20]
)
def test_what_is_no_line_of_a_journal_is_damaged(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_a_line_that_is_not_an_event_is_damaged_though_its_checksum_holds() -> None:
    for body in (b"[1]", b"3", b"null", b"{", b"\xff\xff"):
        with pytest.raises(ValueError):
            decode(b"%08x %s" % (zlib.crc32(body), body))


@given(EVENTS, st.data())
def test_any_torn_tail_is_left_for_later_and_nothing_else_is_lost(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn.jsonl"
    lines = [encode(event) for event in events]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = next(count for count in range(len(lines), -1, -1) if len(b"".join(lines[:count])) <= cut)
    chunk = read_from(path)
    assert chunk.events == events[:kept]
    assert chunk.offset == len(b"".join(lines[:kept]))
    path.write_bytes(whole)
    assert chunk.events + read_from(path, chunk.offset).events == events


@given(EVENTS, EVENTS, st.data())
def test_damage_before_whole_lines_is_told_and_never_skipped(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    damaged = bytearray(encode({"seq": 1, "kind": "heartbeat"}))
    place = data.draw(st.integers(9, len(damaged) - 2))
    damaged[place] = data.draw(
        st.integers(0, 255).filter(lambda byte: byte not in (damaged[place], 10))
    )
    path.write_bytes(b"".join(map(encode, before)) + damaged + b"".join(map(encode, after)))
    with pytest.raises(DamagedJournal) as caught:
        read_from(path)
    assert caught.value.events == before, "what lies before the damage is sound"


@given(EVENTS, st.integers(1, 400))
def test_reading_in_parts_is_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], step: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.jsonl"
    path.write_bytes(b"".join(map(encode, events)))
    longest = max(len(encode(event)) for event in events)
    found: list[dict[str, Any]] = []
    offset = 0
    while chunk := read_from(path, offset, most_bytes=max(step, longest)):
        if not chunk.events:
            break
        found, offset = found + chunk.events, chunk.offset
    assert found == events


def test_a_damaged_last_line_is_not_read_and_not_passed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(encode({"seq": 1}) + b"00000000 {}\n")
    chunk = read_from(path)
    assert chunk.events == [{"seq": 1}]
    assert chunk.offset == len(encode({"seq": 1}))


def test_a_writer_numbers_its_events_and_they_are_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal-0.jsonl"
    writer = JournalWriter(path)
    for _ in range(3):
        writer.write("heartbeat", at=1.23456)
        assert read_all(path)[-1]["kind"] == "heartbeat"
    writer.close()
    assert [event["seq"] for event in read_all(path)] == [1, 2, 3]


def test_a_line_that_does_not_fit_its_kind_is_damaged_and_an_unknown_kind_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal-0.jsonl"
    sound, later = (
        {"seq": number, "at": 1.0, "kind": kind}
        for number, kind in ((1, "of a newer version"), (3, "heartbeat"))
    )
    without_step = {"seq": 2, "at": 1.0, "kind": "checkpoint", "epoch": 1, "bytes": 1}
    path.write_bytes(encode(sound) + encode(without_step) + encode(later))
    with pytest.raises(DamagedJournal) as error:
        read_all(path)
    assert error.value.events == [sound] and error.value.offset == len(encode(sound))


def test_a_journal_has_one_writer_for_ever(tmp_path: Path) -> None:
    JournalWriter(tmp_path / "journal-0.jsonl").close()
    with pytest.raises(FileExistsError):
        JournalWriter(tmp_path / "journal-0.jsonl")


def test_a_number_that_json_cannot_say_is_not_half_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "journal-0.jsonl")
    with pytest.raises(ValueError):
        writer.write("epoch", at=0, loss=float("nan"))
    assert os.path.getsize(tmp_path / "journal-0.jsonl") == 0
    writer.close()


def test_a_missing_journal_has_no_events(tmp_path: Path) -> None:
    assert read_all(tmp_path / "none.jsonl") == []


def test_a_line_is_readable_by_anybody_with_a_json_parser() -> None:
    assert json.loads(encode({"kind": "start"})[9:]) == {"kind": "start"}

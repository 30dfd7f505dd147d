"""Logs are read in parts, whatever their size."""

from pathlib import Path

from vtjobs.orchestrator.views.logs import CHUNK_BYTES, chunk, tail


def test_of_a_log_of_gigabytes_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        file.seek(3 * 10**9)
        file.write(b"x" * CHUNK_BYTES + b"\nlast\n")
    assert tail(path) == ["last"]


def test_parts_in_a_row_are_the_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    lines = [f"line {number}" for number in range(500)]
    path.write_text("\n".join(lines) + "\n")
    found: list[str] = []
    start, size = 0, path.stat().st_size
    while start < size:
        part = chunk(path, start, 100)
        assert part.start == start < part.end <= start + 100
        found += part.lines
        start = part.end
    assert found == lines


def test_the_end_of_a_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    part = chunk(path, None, 50)
    assert part.lines == [f"line {number}" for number in range(94, 100)]
    assert part.end == part.size == path.stat().st_size


def test_a_line_longer_than_a_part_is_shown_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "wide.log"
    path.write_text("x" * 250)
    assert [chunk(path, start, 100).lines for start in (0, 100, 200)] == [
        ["x" * 100],
        ["x" * 100],
        ["x" * 50],
    ]

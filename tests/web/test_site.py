"""The pages as a folder of files."""

import json
import re
from pathlib import Path

import pytest

from vtjobs.jobs.errors import NothingMatched
from vtjobs.jobs.run.selector import parse_selection
from vtjobs.web import site

from ..support.grids import tiny_grid
from ..support.lab import Lab

LINK = re.compile(r'(?:href|src)="([^"]+)"')


def written(half_done: Lab, folder: Path, *words: str) -> Path:
    return site.write(half_done.open(), parse_selection(words, default_all=True), folder)


def check_links(folder: Path) -> None:
    for page in folder.rglob("*.html"):
        for link in LINK.findall(page.read_text()):
            if link != "data:,":
                assert (page.parent / link).resolve().is_file(), (page, link)


def test_every_link_leads_to_a_file_of_the_folder(half_done: Lab, tmp_path: Path) -> None:
    written(half_done, tmp_path / "out")
    # Four of all, a grid, two cells and four runs.
    assert len(list((tmp_path / "out").rglob("*.html"))) == 4 + 1 + 2 + 4
    check_links(tmp_path / "out")


def test_runs_of_a_variance_study_have_pages_without_a_cell(quiet_lab: Lab, tmp_path: Path) -> None:
    study = "variance: {design: crossed, vary: {init: 2, order: 2}}"
    quiet_lab.submit(tiny_grid().replace("seeds: 2", study))
    written(quiet_lab, tmp_path / "out")
    assert list((tmp_path / "out" / "runs").glob("*.html"))
    check_links(tmp_path / "out")


def test_beside_each_page_lies_its_document(half_done: Lab, tmp_path: Path) -> None:
    written(half_done, tmp_path / "out")
    for page in (tmp_path / "out").rglob("*.html"):
        assert isinstance(json.loads(page.with_suffix(".json").read_text()), dict)


def test_nothing_hostile_is_markup_or_acts(half_done: Lab, tmp_path: Path) -> None:
    written(half_done, tmp_path / "out")
    texts = [page.read_text() for page in (tmp_path / "out").rglob("*.html")]
    assert any("&lt;script&gt;alert(1)" in text for text in texts)
    for text in texts:
        assert "<script>alert" not in text
        assert not {"\x1b", "\u202e"} & set(text)


def test_only_what_is_selected_is_written(half_done: Lab, tmp_path: Path) -> None:
    written(half_done, tmp_path / "out", "head=supervised")
    assert len(list((tmp_path / "out" / "runs").glob("*.html"))) == 2
    assert len(list((tmp_path / "out" / "cells").glob("*.html"))) == 1
    with pytest.raises(NothingMatched):
        written(half_done, tmp_path / "none", "head=drloc")
    assert not (tmp_path / "none").exists()


def test_of_many_runs_those_that_did_not_complete_have_a_page(
    half_done: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MOST_RUN_PAGES", 2)
    written(half_done, tmp_path / "out")
    states = half_done.states()
    pages = {page.stem for page in (tmp_path / "out" / "runs").glob("*.html")}
    assert pages == {run for run, state in states.items() if state != "completed"}
    check_links(tmp_path / "out")

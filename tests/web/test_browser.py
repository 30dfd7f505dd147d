"""The pages in a real browser."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from vtjobs.jobs.run.selector import parse_selection
from vtjobs.web import site as files

from ..support.browsing import Site, served
from ..support.journals import ended, journal, scored, started
from ..support.lab import Lab

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (390, 1280, 1920)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def site(half_done: Lab) -> Iterator[Site]:
    with served(half_done) as found:
        yield found


@pytest.fixture
def page(chromium: Browser, site: Site) -> Iterator[Page]:
    """A page, closed before its server, on which no script fails and nothing that was asked for is refused."""
    faults: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    found = context.new_page()
    found.set_default_timeout(20_000)
    # Five seconds by itself, which a busy machine may take.
    expect.set_options(timeout=20_000)
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    found.on("response", lambda one: faults.append(one.url) if one.status >= 400 else None)
    yield found
    expect.set_options(timeout=5_000)
    context.close()
    assert not faults


def enter(page: Page, site: Site) -> None:
    page.goto(site.url)
    page.wait_for_url(re.compile(r"/$"))


def grid_of(page: Page) -> str:
    """Follow the link to the grid; return where it leads, such as `grids/tiny-1234`."""
    page.get_by_role("link", name="tiny", exact=True).click()
    # A click does not wait for what it leads to.
    page.wait_for_url(re.compile("/grids/"))
    return urlsplit(page.url).path.removeprefix("/")


def run_of(lab: Lab, state: str) -> str:
    return next(run for run, word in lab.states().items() if word == state)


def test_the_token_leaves_the_address_and_links_lead_from_page_to_page(
    page: Page, site: Site
) -> None:
    enter(page, site)
    page.get_by_role("link", name="tiny", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tiny")
    page.get_by_role("link", name="61.00 ± 1.41").click()
    expect(page.locator("[data-chart] canvas")).to_be_visible()
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("seed 0")
    page.get_by_role("navigation").get_by_role("link", name="Failures").click()
    expect(page.locator("main")).to_contain_text("Error: 7")


def test_an_open_page_shows_a_run_that_ends(page: Page, site: Site, half_done: Lab) -> None:
    enter(page, site)
    expect(page.locator("main")).to_contain_text("2 of 4")
    waiting = run_of(half_done, "queued")
    journal(half_done, waiting, 1, started(), scored(63.0), ended("completed"))
    expect(page.locator("main")).to_contain_text("3 of 4")


def test_a_retry_asks_first_and_is_done(page: Page, site: Site, half_done: Lab) -> None:
    failed = run_of(half_done, "failed")
    enter(page, site)
    page.goto(f"http://127.0.0.1:{site.port}/runs/{failed}")
    page.get_by_role("button", name="Retry…").click()
    expect(page.locator("main pre")).to_contain_text(failed[:8])
    page.get_by_role("button", name="Retry", exact=True).click()
    page.get_by_role("link", name="Back").click()
    expect(page.locator("dl .state")).not_to_have_text("failed")
    assert half_done.state(failed) != "failed"


def test_nothing_hostile_runs(page: Page, site: Site, half_done: Lab) -> None:
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    enter(page, site)
    failed = run_of(half_done, "failed")
    for path in ("failures", f"runs/{failed}", f"logs/{failed}/1/rank-0.log"):
        page.goto(f"http://127.0.0.1:{site.port}/{path}")
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
    assert not asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault_for_who_cannot_see_it(
    page: Page, site: Site, half_done: Lab, scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    enter(page, site)
    paths = ["", "activity", "failures", "usage", f"runs/{run_of(half_done, 'failed')}"]
    paths.append(grid_of(page))
    for path in paths:
        page.goto(f"http://127.0.0.1:{site.port}/{path}")
        # The rules alone: the tool brings its script by itself, past the page's own policy.
        found = Axe().run(page).response["violations"]
        serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, (path, found)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(
    page: Page, site: Site, half_done: Lab, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    enter(page, site)
    grid = grid_of(page)
    run = run_of(half_done, "failed")
    for path in ("", "activity", "failures", "usage", f"runs/{run}", grid):
        page.goto(f"http://127.0.0.1:{site.port}/{path}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_the_files_work_without_a_server(page: Page, half_done: Lab, tmp_path: Path) -> None:
    first = files.write(half_done.open(), parse_selection([], default_all=True), tmp_path / "out")
    page.goto(first.as_uri())
    page.get_by_role("link", name="tiny", exact=True).click()
    expect(page.locator("[data-chart] canvas")).to_be_visible()
    page.get_by_role("link", name="61.00 ± 1.41").click()
    expect(page.locator("[data-chart] canvas")).to_be_visible()

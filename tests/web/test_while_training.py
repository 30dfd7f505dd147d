"""A page stays open while a real grid trains and one of its workers is killed."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from ..conftest import processes_of
from ..support.cli import Cli
from ..support.grids import tiny_grid
from ..support.lab import children, wait_for
from .test_browser import CHROMIUM

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture
def address(cli: Cli) -> Iterator[str]:
    """Where `vtjobs ui` serves the pages, as it prints it."""
    cli.write("grid.yaml", tiny_grid(seeds="2", epochs=40, slow=True))
    cli.ok("submit", "grid.yaml", "--hold")
    server = cli.start("ui", "--port", "0", "--every", "1")
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=20)
    assert "Traceback" not in errors


@pytest.fixture
def page(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_context().new_page()
        page.set_default_timeout(120_000)
        expect.set_options(timeout=120_000)
        page.goto(address)
        page.wait_for_url(re.compile(r"/$"))
        yield page
        expect.set_options(timeout=5_000)
        browser.close()


def ranks(cli: Cli) -> list[int]:
    found = []
    for pid in processes_of(cli.workspace):
        for template in children(pid):
            found += children(template)
    return found


def test_a_killed_worker_appears_under_failures_and_comes_back(cli: Cli, page: Page) -> None:
    page.get_by_role("link", name="tiny", exact=True).click()
    expect(page.locator("main")).to_contain_text("2 held")
    cli.ok("release", "tiny")
    expect(page.locator("main")).to_contain_text("running")
    expect(page.locator("[data-chart] canvas").first).to_be_visible()
    failures = page.context.new_page()
    failures.goto(re.sub(r"/grids/.*", "/failures", page.url))
    expect(failures.locator("main")).to_contain_text("No run has failed")
    for pid in wait_for(lambda: ranks(cli)):
        os.kill(pid, signal.SIGKILL)
    expect(failures.locator("main h2").first).to_contain_text("×")
    cli.ok("wait", "tiny")
    expect(page.locator("main")).to_contain_text("2 completed")
    expect(page.locator("tbody").first).to_contain_text("2/2")
    expect(failures.locator("main")).to_contain_text("No run has failed")

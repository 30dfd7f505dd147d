"""The pages over HTTP, from a real server."""

import contextlib
import gzip
import http.client
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vtjobs.jobs.errors import LedgerUnreachable
from vtjobs.web.addresses import Address
from vtjobs.web.documents import PageDocument
from vtjobs.web.gather import Source
from vtjobs.web.server import feed, pages

from ...support.browsing import Site, served
from ...support.grids import tiny_grid
from ...support.journals import ended, journal, scored, started
from ...support.lab import Lab, wait_for
from ...support.webhook import webhook


@pytest.fixture
def site(half_done: Lab) -> Iterator[Site]:
    with served(half_done) as found:
        yield found


def of_state(half_done: Lab, state: str) -> str:
    return next(run for run, word in half_done.states().items() if word == state)


@contextlib.contextmanager
def listening(site: Site) -> Iterator[Iterator[dict[str, object]]]:
    """Listen to what open pages are told."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {site.token}"})
    answer = connection.getresponse()

    def told() -> Iterator[dict[str, object]]:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    try:
        yield told()
    finally:
        connection.close()


def until(
    told: Iterator[dict[str, object]], is_so: Callable[[dict[str, object]], bool]
) -> dict[str, object]:
    """Return the first of the next events of which it is so."""
    seen = list(itertools.islice(told, 1))
    while not is_so(seen[-1]):
        assert len(seen) < 100, seen[-1]
        seen += itertools.islice(told, 1)
    return seen[-1]


@pytest.mark.parametrize("path", ["/", "/activity", "/failures", "/usage", "/index.json"])
def test_every_page_is_served(site: Site, path: str) -> None:
    assert site.ask(path).status == 200


@pytest.mark.parametrize(
    "path",
    ["/x", "/runs/0000000000000000", "/static/x", "/grids/no-00000000", "/static/..%2Fsite.py"],
)
def test_what_is_not_there_is_said_to_be_missing(site: Site, path: str) -> None:
    assert site.ask(path).status == 404


def test_a_page_is_sent_once_and_packed(site: Site) -> None:
    first = site.ask("/", Accept_Encoding="gzip")
    assert gzip.decompress(first.body).decode() == site.ask("/").text
    again = site.ask("/", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_an_open_page_is_told_when_the_ledger_has_something_new(site: Site, half_done: Lab) -> None:
    waiting = of_state(half_done, "queued")
    with listening(site) as told:
        before = next(told)
        journal(half_done, waiting, 1, started(), scored(63.0), ended("completed"))
        after = until(told, lambda seen: ">63<" in site.ask(f"/runs/{waiting}").text)
        assert after["version"] != before["version"]


def test_while_nothing_happens_the_version_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time alone is not what this is about.
    monkeypatch.setattr(pages, "RENEW_S", 1e12)
    with listening(site) as told:
        next(told)
        next(told)
        assert len({next(told)["version"] for _ in range(3)}) == 1


def test_nothing_is_looked_at_while_nobody_watches(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    look = pages.Pages.look

    def counted(self: pages.Pages) -> pages.Seen:
        looked.append(time.monotonic())
        return look(self)

    monkeypatch.setattr(pages.Pages, "look", counted)
    with listening(site) as told:
        for _ in range(3):
            next(told)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and time.monotonic() - looked[-1] < 1.5:
        time.sleep(0.1)
    assert time.monotonic() - looked[-1] >= 1.5


def test_ten_open_pages_are_one_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = pages.Pages.look

    def counted(self: pages.Pages) -> pages.Seen:
        looks.append(1)
        return look(self)

    monkeypatch.setattr(pages.Pages, "look", counted)
    told = []

    def follow() -> None:
        with listening(site) as events:
            told.append([next(events) for _ in range(4)])

    threads = [threading.Thread(target=follow) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 10 and len(looks) < 15


def test_more_open_pages_than_can_be_served_are_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_CLIENTS", 0)
    assert site.ask("/events").status == 503


def test_pages_are_made_once_until_something_happens(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    document_of = pages.document_of

    def counted(source: Source, address: Address) -> PageDocument | None:
        made.append(address.path)
        return document_of(source, address)

    monkeypatch.setattr(pages, "document_of", counted)
    for _ in range(20):
        site.ask("/usage")
    assert made == ["usage"]


def test_a_log_is_served_in_parts(site: Site, half_done: Lab) -> None:
    run_id = of_state(half_done, "failed")
    path = half_done.run(run_id).logs(1) / "rank-0.log"
    with path.open("ab") as file:
        file.seek(2 * 10**9)
        file.write(b"\n" + b"\n".join(b"line %d" % number for number in range(20_000)))
    answer = site.ask(f"/logs/{run_id}/1/rank-0.log")
    assert answer.status == 200 and "line 19999" in answer.text and len(answer.body) < 200_000
    first = site.ask(f"/logs/{run_id}/1/rank-0.log?from=0")
    assert "first\n" in first.text and "<script>alert" not in first.text


@pytest.mark.parametrize("name", ["..%2F..%2Fspec.json", "spec.json", "none.log"])
def test_only_logs_are_served_as_logs(site: Site, half_done: Lab, name: str) -> None:
    assert site.ask(f"/logs/{of_state(half_done, 'failed')}/1/{name}").status == 404


def test_metrics_are_those_of_the_command(site: Site) -> None:
    assert 'vtjobs_runs{grid="tiny-' in site.ask("/metrics").text


def test_an_action_is_shown_before_it_is_done(site: Site, half_done: Lab) -> None:
    run_id = of_state(half_done, "failed")
    form = f"action=retry&words={run_id}&back=failures"
    asked = site.ask("/ask", method="POST", body=form, Sec_Fetch_Site="same-origin")
    assert asked.status == 200 and run_id[:8] in asked.text and 'method="post"' in asked.text
    assert half_done.state(run_id) == "failed"
    done = site.ask("/act", method="POST", body=form, Sec_Fetch_Site="same-origin")
    assert done.status == 200 and half_done.state(run_id) != "failed"


def test_a_change_from_elsewhere_is_refused(site: Site, half_done: Lab) -> None:
    run_id = of_state(half_done, "failed")
    form = f"action=retry&words={run_id}&back=failures"
    for headers in ({}, {"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert site.ask("/act", method="POST", body=form, **headers).status == 403
    assert half_done.state(run_id) == "failed"


@pytest.mark.parametrize(
    "form",
    [
        "action=gc&words=all&back=index",
        "action=retry&words=--help&back=index",
        "action=retry&words=&back=index",
        "action=retry&words=all&back=http://evil.example",
    ],
)
def test_only_what_pages_offer_is_done(site: Site, form: str) -> None:
    for path in ("/act", "/ask"):
        answer = site.ask(path, method="POST", body=form, Sec_Fetch_Site="same-origin")
        assert answer.status == 404


def test_read_only_pages_offer_and_do_nothing(half_done: Lab) -> None:
    with served(half_done, acts=False) as site:
        run_id = of_state(half_done, "failed")
        assert "<form" not in site.ask(f"/runs/{run_id}").text
        form = f"action=retry&words={run_id}&back=failures"
        for path in ("/ask", "/act"):
            answer = site.ask(path, method="POST", body=form, Sec_Fetch_Site="same-origin")
            assert answer.status == 403
        assert half_done.state(run_id) == "failed"


def test_what_is_done_from_a_page_is_done_to_what_it_shows(half_done: Lab) -> None:
    with served(half_done, words=("head=relvit",)) as site:
        (grid,) = json.loads(site.ask("/index.json").text)["status"]["grids"]
        text = site.ask(f"/grids/{grid['grid_id']}").text
        words = re.findall(r'name="words" value="([^"]+)"', text)
        assert words == [grid["grid_id"], "head=relvit"]


def test_thousands_of_runs_can_be_asked_for_at_once(site: Site) -> None:
    form = "action=retry&back=failures" + "&words=0123456789abcdef" * 20_000
    asked = site.ask("/ask", method="POST", body=form, Sec_Fetch_Site="same-origin")
    assert asked.status == 200 and "0123456789abcdef" in asked.text


def test_a_ledger_that_is_away_is_told_and_comes_back(
    half_done: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise LedgerUnreachable("the ledger is away")

    with served(half_done) as site, listening(site) as told:
        usual = next(told)["problems"]
        with monkeypatch.context() as broken:
            broken.setattr(pages.overview, "marker", away)
            until(told, lambda seen: seen["problems"] == ["the ledger is away"])
        until(told, lambda seen: seen["problems"] == usual)


def test_a_look_that_fails_ends_the_stream_so_that_the_page_comes_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: pages.Pages) -> pages.Seen:
        raise RuntimeError("a mistake of ours")

    with listening(site) as told:
        next(told)
        with monkeypatch.context() as broken:
            broken.setattr(pages.Pages, "look", failing)
            assert len(list(itertools.islice(told, 100))) < 100
    with listening(site) as told:
        assert len(list(itertools.islice(told, 3))) == 3


def test_what_takes_long_to_make_is_not_made_at_every_change(
    half_done: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []
    document_of = pages.document_of

    def slow(source: Source, address: Address) -> PageDocument | None:
        made.append(time.monotonic())
        time.sleep(0.5)
        return document_of(source, address)

    monkeypatch.setattr(pages, "document_of", slow)
    with served(half_done) as site, listening(site) as told:
        first = site.ask("/usage").headers["vtjobs-version"]
        journal(half_done, of_state(half_done, "queued"), 1, started(), ended("completed"))
        until(told, lambda seen: str(seen["version"]) != first)
        # It says how old it is, so that an open page asks for it again.
        assert site.ask("/usage").headers["vtjobs-version"] == first
    assert len(made) == 1


def test_an_open_page_lets_be_sent_what_has_happened(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid())
    quiet_lab.tick()
    with webhook() as hook:
        settings = f"notify: {{to: '{hook.url}', every_s: 0}}\n"
        (quiet_lab.folder / "vtjobs.yaml").write_text(settings)
        with served(quiet_lab) as site, listening(site) as told:
            next(told)
            for run_id in runs:
                journal(quiet_lab, run_id, 1, started(), scored(60.0), ended("completed"))
            wait_for(lambda: hook.messages)
    assert "has ended: 2 completed" in hook.messages[0]["message"]

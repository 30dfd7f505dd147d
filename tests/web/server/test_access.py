"""Without the token nothing is served, and nothing is changed but from these pages."""

import http.client
import json
import socket
import stat
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.web.server.access import access, is_same_origin
from vtjobs.web.server.serve import token_from

from ...support.browsing import served
from ...support.lab import Lab

PATHS = ("/", "/index.json", "/failures", "/events", "/metrics", "/static/vtjobs.css", "/nothing")


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_without_the_token_nothing_is_served(half_done: Lab, token: str) -> None:
    with served(half_done) as site:
        for path in PATHS:
            answer = site.ask(f"{path}?token=wrong", token=token.encode().decode("latin-1"))
            assert answer.status == 403 and b"tiny" not in answer.body
        assert site.ask("/act", method="POST", token="", Sec_Fetch_Site="same-origin").status == 403


def test_the_token_of_the_address_becomes_a_strict_cookie_and_goes(half_done: Lab) -> None:
    with served(half_done) as site:
        answer = site.ask(f"/grids/x?token={site.token}&a=b%22%3E", token="")
        cookie = answer.headers["set-cookie"]
        assert answer.status == 200 and "SameSite=strict" in cookie and "HttpOnly" in cookie
        assert 'content="0;url=/grids/x?a=b%22%3E"' in answer.text
        assert site.token not in answer.text
        assert site.ask("/", token="", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_that_is_not_ours_is_refused(half_done: Lab, host: str) -> None:
    with served(half_done) as site:
        assert site.ask("/", Host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1"])
def test_names_of_this_machine_are_known(host: str) -> None:
    assert access("t" * 16, "127.0.0.1").knows_host(host)


def test_a_name_that_a_proxy_is_asked_for_can_be_allowed() -> None:
    assert access("t" * 16, "127.0.0.1", ["hub.example"]).knows_host("hub.example:443")


@pytest.mark.parametrize(
    ("origin", "fetched", "is_so"),
    [
        ("", "same-origin", True),
        ("", "cross-site", False),
        ("", "same-site", False),
        ("", "none", False),
        ("http://h:1", "", True),
        ("http://h:2", "", False),
        ("null", "", False),
        ("", "", False),
    ],
)
def test_a_change_comes_from_our_own_pages(origin: str, fetched: str, is_so: bool) -> None:
    assert is_same_origin(host="h:1", origin=origin, site=fetched) is is_so


def test_no_page_runs_a_script_of_its_text(half_done: Lab) -> None:
    with served(half_done) as site:
        headers = site.ask("/").headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("token", ["short", "with spaces in it here", "with/slash/in/it/here"])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(BadInput, match="VTJOBS_UI_TOKEN"):
        token_from(token)


def test_each_start_draws_another_token() -> None:
    assert token_from(None) != token_from("") and token_from("a" * 16) == "a" * 16


def test_a_unix_socket_is_for_its_owner_alone(half_done: Lab, tmp_path: Path) -> None:
    path = tmp_path / "ui"
    try:
        with served(half_done, path=path) as site:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(path))
            connection.request(
                "GET", "/index.json", headers={"Authorization": f"Bearer {site.token}"}
            )
            assert json.loads(connection.getresponse().read())["status"]["grids"]
            connection.close()
            with pytest.raises(BadInput, match="somebody listens"), served(half_done, path=path):
                pass
    finally:
        path.unlink(missing_ok=True)


def test_behind_a_proxy_addresses_begin_with_its_path(half_done: Lab) -> None:
    with served(half_done, root="/node/n1") as site:
        assert "/node/n1/?token=" in site.url
        for path in ("/", "/node/n1/"):
            assert 'href="/node/n1/failures"' in site.ask(path).text
        welcome = site.ask(f"/?token={site.token}", token="")
        assert "Path=/node/n1/" in welcome.headers["set-cookie"]
        assert 'url=/node/n1/"' in welcome.text

"""Addresses of pages: what is no page has none."""

import pytest

from vtjobs.web.addresses import Address, Kind, is_log_name, parse


@pytest.mark.parametrize(
    "address",
    [
        Address(Kind.OVERVIEW),
        Address(Kind.GRID, "tiny-1cb6ed49"),
        Address(Kind.CELL, "0123456789abcdef"),
        Address(Kind.RUN, "0123456789abcdef"),
    ],
)
def test_an_address_is_read_back_from_its_path(address: Address) -> None:
    assert parse(address.path) == address


def test_the_root_is_the_overview() -> None:
    assert parse("") == Address(Kind.OVERVIEW)


@pytest.mark.parametrize(
    "path",
    ["x", "index/x", "grids", "grids/", "grids/../etc", "runs/xyz", "runs/0123456789abcdef/x", "/"],
)
def test_what_is_no_page_has_no_address(path: str) -> None:
    assert parse(path) is None


@pytest.mark.parametrize("name", ["../rank-0.log", "rank-0", ".log", "a/b.log", ""])
def test_what_is_no_log_has_no_name_of_one(name: str) -> None:
    assert is_log_name("rank-0.log") and not is_log_name(name)

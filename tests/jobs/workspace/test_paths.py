"""Paths, and the fences that keep two attempts of a run apart."""

import json
import multiprocessing
import os
import pwd
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtjobs.jobs.atomic_files import make_folder, read_json, touch_new, write_new, write_over
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.workspace.paths import RunFolder, Workspace, WorkspaceUnreadable
from vtjobs.jobs.workspace.user_requests import requests_of


def race(folder: Path, number: int, barrier: Barrier, won: Path) -> None:
    barrier.wait()
    if RunFolder(folder).claim(number):
        (won / f"{number}-{multiprocessing.current_process().pid}").touch()


@pytest.mark.parametrize("numbers", [[1] * 8, [1, 1, 2, 2, 3, 3, 4, 4]])
def test_eight_processes_race_for_a_run_and_one_wins_each_claim_at_most(
    tmp_path: Path, numbers: list[int]
) -> None:
    context = multiprocessing.get_context("fork")
    for round_ in range(10):
        folder, won = tmp_path / f"run{round_}", tmp_path / f"won{round_}"
        won.mkdir()
        barrier = context.Barrier(len(numbers))
        racers = [
            context.Process(target=race, args=(folder, number, barrier, won)) for number in numbers
        ]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(30)
            assert racer.exitcode == 0
        winners = [int(path.name.split("-")[0]) for path in won.iterdir()]
        assert len(winners) == len(set(winners)), "no claim is given twice"
        assert max(numbers) in winners, "nothing stands in the way of the highest"
        assert RunFolder(folder).highest_claim() == max(numbers)


def test_a_lower_attempt_comes_too_late(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.claim(3)
    assert not folder.claim(3)
    assert not folder.claim(2)
    assert folder.claim(4)
    assert folder.highest_claim() == 4


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_a_claim_is_won_by_whoever_is_above_all_before(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int]
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    highest = 0
    for number in numbers:
        assert folder.claim(number) == (number > highest)
        highest = max(highest, number)


def test_a_cancel_is_kept_and_the_highest_holds(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.highest_cancel() == 0
    for number in (2, 5, 3, 5):
        folder.cancel(number)
    assert folder.highest_cancel() == 5
    assert sorted(path.name for path in folder.cancels.iterdir()) == ["0002", "0003", "0005"]


def test_what_users_asked_for_is_told_with_the_time_and_the_user(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.cancel(3)
    make_folder(folder.grants)
    for name in ("0001", "0003-clean", "0003"):
        (folder.grants / name).touch()
    (folder.cancels / "0003~").touch()
    os.utime(folder.cancels / "0003", (50.0, 50.0))
    found = requests_of(folder)
    order = [(1, "retry"), (3, "cancel"), (3, "rerun"), (3, "retry")]
    assert [(item.number, item.word) for item in found] == order
    assert found[1].at == 50.0
    assert {item.by for item in found} == {pwd.getpwuid(os.geteuid()).pw_name}


def test_numbers_of_more_than_four_digits_are_still_in_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.claim(9999)
    assert folder.claim(10000)
    assert folder.highest_claim() == 10000
    assert not folder.claim(9999)


def test_a_foreign_file_among_the_claims_does_no_harm(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.claim(1)
    for name in (".nfs0001", "README", "0002~", "²"):
        (folder.claims / name).touch()
    assert folder.highest_claim() == 1
    assert folder.claim(2)


def test_what_is_no_mark_of_ours_grants_and_requests_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.grants.mkdir()
    for name in (".nfs0001", "0003~", "0003-clean.swp", "²", "0004", "0005-clean"):
        (folder.grants / name).touch()
    assert folder.all_grants() == [(4, False), (5, True)]
    assert [(found.number, found.word) for found in requests_of(folder)] == [
        (4, "retry"),
        (5, "rerun"),
    ]


def test_a_workspace_is_made_once(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "deep" / "runs").create()
    identity = workspace.check()
    assert workspace.create().check() == identity
    assert identity["version"] == 1


def test_a_folder_without_its_identity_is_unknown_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceUnreadable, match=r"no workspace\.json") as caught:
        Workspace(tmp_path).check()
    assert caught.value.exit_code == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", "3", '"x"', '{"id": "x", "version": "new"}'])
def test_a_damaged_identity_is_unreadable(tmp_path: Path, content: str) -> None:
    (tmp_path / "workspace.json").write_text(content)
    with pytest.raises(WorkspaceUnreadable):
        Workspace(tmp_path).check()


def test_a_workspace_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "workspace.json").write_text(
        json.dumps({"id": "x", "version": 2, "ledger_host": "h"})
    )
    with pytest.raises(BadInput, match="newer vtjobs"):
        Workspace(tmp_path).check()


def test_runs_are_found_by_their_folders(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    for run_id in ("ab" * 8, "ac" * 8):
        workspace.run(run_id).path.mkdir(parents=True)
    (tmp_path / "ab" / "stray").touch()
    assert list(workspace.run_ids()) == ["ab" * 8, "ac" * 8]


def test_a_new_file_is_whole_and_the_first_writer_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert write_new(path, b'{"a": 1}')
    assert not write_new(path, b'{"a": 2}')
    assert read_json(path) == {"a": 1}
    write_over(path, b'{"a": 3}')
    assert read_json(path) == {"a": 3}
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"], "nothing staged is left"


def test_an_empty_file_is_made_once(tmp_path: Path) -> None:
    assert touch_new(tmp_path / "0001")
    assert not touch_new(tmp_path / "0001")
    assert read_json(tmp_path / "missing") is None

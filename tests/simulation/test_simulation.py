"""Thousands of runs on a simulated cluster that does to them what real ones were seen to do.

A failure names its seed: `python -m tests.simulation.run --seed N --runs M --verbose` shows that
history again.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .history import play
from .profile import draw

ROOT = Path(__file__).parents[2]
# First seed, runs of each history, histories: in parts that cores can share.
PARTS = [(1000, 100, 2), (1002, 100, 2), (1100, 250, 1)]
# A core takes a minute or more for a thousand runs. A machine with less time than that names fewer.
LONG_RUNS = int(os.environ.get("VTJOBS_SIMULATED_RUNS", "20000"))
LONG_PARTS = [(begin, 250, 1) for begin in range(10_000, 10_000 + LONG_RUNS // 250)]
# What only large histories show: this one found a job that was cancelled while it waited.
if LONG_RUNS >= 20_000:
    LONG_PARTS.insert(0, (1203, 1000, 1))


def play_all(first: int, runs: int, count: int) -> int:
    """Play histories; return how many runs there were."""
    return sum(play(seed, runs).runs for seed in range(first, first + count))


@pytest.mark.parametrize(("first", "runs", "count"), PARTS)
def test_every_run_comes_to_the_right_end_whatever_happens(
    first: int, runs: int, count: int
) -> None:
    # Of a chain of stages both count; an odd one is left out.
    assert play_all(first, runs, count) >= (runs - 1) * count


@pytest.mark.parametrize("seed", range(1000, 1002))
def test_every_run_comes_to_the_right_end_where_nodes_take_jobs_and_administrators_requeue_them(
    seed: int,
) -> None:
    profile = replace(draw(seed, 60), black_holes=2, admins=10.0)
    assert play(seed, 60, profile).runs >= 59


@pytest.mark.long
@pytest.mark.parametrize(("first", "runs", "count"), LONG_PARTS)
def test_every_one_of_many_thousand_runs_comes_to_the_right_end(
    first: int, runs: int, count: int
) -> None:
    assert play_all(first, runs, count) >= (runs - 1) * count


def test_one_seed_is_one_history_in_any_process() -> None:
    told = [play(77, 30).fingerprint, play(78, 30).fingerprint]
    code = "from tests.simulation.history import play; print(play(77, 30).fingerprint)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == told[0]
    assert told[0] != told[1]


def test_the_settings_of_histories_differ() -> None:
    drawn = [draw(seed, 100) for seed in range(200)]
    assert {profile.accounting for profile in drawn} == {True, False}
    assert {profile.lose_ledger > 0 for profile in drawn} == {True, False}
    assert {profile.lanes for profile in drawn} == {1, 2, 4}

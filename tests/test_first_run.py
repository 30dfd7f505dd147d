"""The main job, as a user does it."""

from .support.cli import Cli
from .support.grids import tiny_grid


def test_a_grid_is_trained_and_reported_and_a_second_submission_adds_nothing(
    cli: Cli, ledger_url: str
) -> None:
    cli.env["VTJOBS_LEDGER"] = ledger_url
    grid = cli.write(
        "grid.yaml",
        tiny_grid(heads="[supervised, drloc: {weight: 0.5, width: 16, pairs: 4}, relvit]"),
    )
    first = cli("submit", grid, "--wait")
    assert first.returncode == 0, first.stderr
    cells = cli.json("report", "tiny")
    assert [(cell["head"], cell["n"], cell["planned"]) for cell in cells] == [
        ("supervised", 2, 2),
        ("drloc", 2, 2),
        ("relvit", 2, 2),
    ]
    second = cli("submit", grid, "--wait")
    assert "0 new, 6 already completed" in second.stderr
    assert all(run["attempts"] == 1 for run in cli.json("runs", "tiny"))

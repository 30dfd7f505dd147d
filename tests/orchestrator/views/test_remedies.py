"""What helps against a failure: every command that is printed is run."""

import re

import pytest
from typer.testing import CliRunner

from vtjobs.cli import application
from vtjobs.db import queries
from vtjobs.db.engine import reading
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.views import failures as view_failures
from vtjobs.orchestrator.views.why import why

from ...support.grids import tiny_grid
from ...support.journals import ended, journal, started
from ...support.lab import Lab

TORCH = """\
Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/torch/nn/functional.py", line 12, in f
    return g()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB
"""
HEAD = """\
Traceback (most recent call last):
  File "<head Boom>", line 11, in forward
    raise ValueError
ValueError: 3 of 17
"""


def end(
    lab: Lab, run_id: str, failure: str, *, state: str = "failed", number: int = 1, error: str = ""
) -> None:
    """Let the newest attempt of a run end."""
    lab.tick()
    what = ended(state, failure, signature="Error: #", error=error)
    journal(lab, run_id, number, started(attempt=number), what)
    lab.tick()


def grid(more: str = "") -> str:
    return tiny_grid(seeds="1", extra=f"retries: 1\n{more}")


def last_command(text: str) -> list[str]:
    """Return the command that a remedy ends with."""
    found = re.search(r"(?:^|run: )vtjobs ([^.]+)$", text)
    assert found is not None, text
    return found[1].split()


def run(lab: Lab, words: list[str]) -> None:
    """Run a command as it was printed."""
    done = CliRunner().invoke(application(), [*words, "--workspace", str(lab.root)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("failure", "state", "error"),
    [
        ("user_error", "failed", ""),
        ("user_error", "failed", HEAD.replace("<head Boom>", "/home/me/helper.py")),
        ("setup_error", "failed", ""),
        ("data", "failed", ""),
        ("data_missing", "failed", ""),
        ("storage", "failed", ""),
        ("refused", "failed", ""),
        ("hang", "failed", ""),
        ("no_checkpoint", "failed", ""),
        ("out_of_memory", "out_of_memory", "rank 0: killed by the kernel"),
    ],
)
def test_the_command_that_why_names_gives_the_run_another_try(
    quiet_lab: Lab, failure: str, state: str, error: str
) -> None:
    (run_id,) = quiet_lab.submit(grid())
    end(quiet_lab, run_id, failure, state=state, error=error)
    assert quiet_lab.state(run_id) == "failed"
    action = why(quiet_lab.context, run_id).action
    (group,) = view_failures.failures(quiet_lab.context, Selection())
    assert group.remedy == action
    run(quiet_lab, last_command(action))
    assert quiet_lab.state(run_id) in ("pending", "queued")


def test_a_mistake_in_ones_own_head_is_not_answered_with_a_retry(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(grid("description: 'heads of boom.py:Boom'"))
    end(quiet_lab, run_id, "user_error", error=HEAD)
    action = why(quiet_lab.context, run_id).action
    assert action.startswith("Fix boom.py:11 and submit the grid file again")
    assert "retry" not in action


def test_a_module_that_is_missing_where_runs_train_is_to_be_installed(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(grid("description: 'heads of boom.py:Boom'"))
    missing = HEAD.replace("ValueError: 3 of 17", "ModuleNotFoundError: No module named 'datasets'")
    assert missing != HEAD
    end(quiet_lab, run_id, "setup_error", error=missing)
    action = why(quiet_lab.context, run_id).action
    assert action.startswith("Install the module where runs train, then run: vtjobs retry")


def test_a_head_whose_file_is_not_known_is_named_by_its_class(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(grid("description: 'boom.py:Boom, other.py:Boom'"))
    end(quiet_lab, run_id, "user_error", error=HEAD)
    assert why(quiet_lab.context, run_id).place == "head Boom, line 11"


def test_runs_that_share_a_gpu_are_told_to_share_it_with_fewer(
    quiet_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (run_id,) = quiet_lab.submit(grid().replace("gpus_per_node: 0", "gpus_per_node: 1, per_gpu: 2"))
    end(quiet_lab, run_id, "out_of_memory", state="out_of_memory", error=TORCH)
    action = why(quiet_lab.context, run_id).action
    assert action.startswith("2 runs share each GPU. Lower resources.per_gpu in the grid file")
    run(quiet_lab, last_command(action))


@pytest.mark.parametrize(
    ("retries", "keys"),
    [(3, ["halve_micro_batch: true"]), (1, ["halve_micro_batch: true", "retries: 2"])],
)
def test_out_of_memory_is_answered_with_settings_that_give_another_try_with_half_the_micro_batch(
    quiet_lab: Lab, retries: int, keys: list[str]
) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra=f"retries: {retries}"))
    end(quiet_lab, run_id, "out_of_memory", state="out_of_memory", error=TORCH)
    action = why(quiet_lab.context, run_id).action
    assert action.startswith(f"Set {' and '.join(keys)} in the grid file and submit it again")
    assert quiet_lab.submit(tiny_grid(seeds="1", extra="\n".join(keys))) == [run_id]
    quiet_lab.tick()
    with reading(quiet_lab.context.ledger.engine) as connection:
        (row,) = queries.list_runs(connection, Selection())
    assert (row.state, row.micro_split) == ("queued", 2)


def test_where_half_of_it_was_not_enough_other_ways_are_named(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 2\nhalve_micro_batch: true"))
    for number in (1, 2):
        oom = {"failure": "out_of_memory", "state": "out_of_memory", "error": TORCH}
        end(quiet_lab, run_id, number=number, **oom)
    action = why(quiet_lab.context, run_id).action
    assert "train.virtual_ranks" in action and "train.batch_size" in action
    run(quiet_lab, last_command(action))
    assert quiet_lab.state(run_id) in ("pending", "queued")


def test_a_diverged_run_is_told_what_to_change(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(grid())
    end(quiet_lab, run_id, "diverged")
    assert quiet_lab.state(run_id) == "diverged"
    assert "train.lr" in why(quiet_lab.context, run_id).action


def test_a_run_that_tries_again_by_itself_needs_no_remedy(quiet_lab: Lab) -> None:
    (run_id,) = quiet_lab.submit(tiny_grid(seeds="1", extra="retries: 3"))
    end(quiet_lab, run_id, "storage")
    (group,) = view_failures.failures(quiet_lab.context, Selection())
    assert group.remedy == ""


def test_many_runs_that_failed_alike_are_retried_with_one_command(quiet_lab: Lab) -> None:
    runs = quiet_lab.submit(tiny_grid(seeds="12", extra="retries: 1"))
    quiet_lab.tick()
    for run_id in runs:
        journal(quiet_lab, run_id, 1, started(), ended("failed", "hang", signature="no progress"))
    quiet_lab.tick()
    (group,) = view_failures.failures(quiet_lab.context, Selection())
    assert group.runs == 12
    run(quiet_lab, [*last_command(group.remedy), "--yes"])
    assert not {quiet_lab.state(run_id) for run_id in runs} & {"failed"}

"""The command line's promises: exit codes, documents, what is imported, what goes where."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vtjobs.cli import COMMANDS

from .conftest import finished
from .support.cli import Cli
from .support.grids import ENDLESS, tiny_grid
from .support.scheduler import Commands

GRID = tiny_grid(heads="[supervised, relvit]", seeds="2", epochs=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Cli]:
    """A workspace with one finished grid, for commands that only read."""
    yield from finished(tmp_path_factory.mktemp("trained"), cache, GRID)


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(' '.join(sys.modules), file=sys.stderr)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    loaded = imported_by("import vtjobs.cli\nvtjobs.cli.application()")
    assert not loaded & {
        "torch",
        "timm",
        "ray",
        "submitit",
        "scipy",
        "numpy",
        "sqlalchemy",
        "yaml",
        "rich",
        # A tenth of the time that the command line takes to start.
        "msgspec",
    }


def test_a_command_imports_no_other_commands_module() -> None:
    loaded = imported_by("import vtjobs.cli\nvtjobs.cli.application(['status'])")
    modules = {f"vtjobs.commands.{module}" for module in COMMANDS.values()}
    assert loaded & modules == {"vtjobs.commands.watch"}


def test_help_names_every_command_and_no_backend_that_is_not_there(trained: Cli) -> None:
    text = trained.ok("--help")
    for command in (
        "submit",
        "plan",
        "status",
        "runs",
        "show",
        "logs",
        "failures",
        "retry",
        "rerun",
        "cancel",
        "report",
        "compare",
    ):
        assert f"\n  {command} " in text
    assert "slurm" not in text.lower()


def test_status_imports_nothing_heavy(trained: Cli) -> None:
    code = (
        "sys.argv = ['vtjobs', 'status']\nimport vtjobs.cli\ntry:\n    vtjobs.cli.main()\nexcept"
        " SystemExit:\n    pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('MODULES', ' '.join(sys.modules))"],
        capture_output=True, text=True, check=True, cwd=trained.folder, env=trained.environment(),
    )  # fmt: skip
    loaded = set(done.stdout.split("MODULES")[1].split())
    heavy = {"torch", "timm", "numpy", "scipy", "alembic", "pydantic", "rich", "yaml"}
    assert not loaded & {*heavy, "sqlalchemy.dialects.postgresql", "psycopg"}


def test_a_command_closes_the_ledger_before_its_process_ends(trained: Cli, tmp_path: Path) -> None:
    # A copy: another process may still watch over the workspace itself.
    read, written = (
        sqlite3.connect(folder / "ledger.sqlite") for folder in (trained.workspace, tmp_path)
    )
    with contextlib.closing(read), contextlib.closing(written):
        read.backup(written)
    for name in ("workspace.json", "workspace.copy.json"):
        shutil.copy(trained.workspace / name, tmp_path)
    subprocess.run(
        [sys.executable, "-m", "vtjobs.cli", "status", "--workspace", str(tmp_path)],
        capture_output=True, check=True, cwd=trained.folder, env=trained.environment(),
    )  # fmt: skip
    files = [path.name for path in tmp_path.glob("ledger.sqlite*")]
    assert files == ["ledger.sqlite"], "the last one to close it writes its log back"


def test_status_counts_every_state(trained: Cli) -> None:
    document = trained.json("status")
    assert document["schema_version"] == 1
    assert document["runs"]["completed"] == 4
    assert sum(document["runs"].values()) == 4
    assert document["grids"][0]["name"] == "tiny"


def test_runs_lists_what_a_reader_may_rely_on(trained: Cli) -> None:
    for run in trained.json("runs"):
        assert run["state"] == "completed"
        assert {"run_id", "backbone", "dataset", "head", "seed", "state", "attempts"} <= run.keys()
        assert 0 < run["top1"] <= 100


def test_quiet_prints_ids_that_other_commands_take(trained: Cli) -> None:
    ids = trained.ok("runs", "head=relvit", "-q").split()
    assert len(ids) == 2
    assert trained.json("show", ids[0])["run_id"] == ids[0]
    assert trained.ok("runs", *ids, "-q").split() == ids


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["all"], 4),
        (["tiny"], 4),
        (["grid=tiny", "head=relvit"], 2),
        (["seed!=0"], 2),
        (["head=relvit,supervised", "seed=1"], 2),
        (["status=completed"], 4),
        (["status!=failed"], 4),
    ],
)
def test_the_selector_grammar_selects(trained: Cli, words: list[str], expected: int) -> None:
    assert len(trained.ok("runs", *words, "-q").split()) == expected


def test_show_tells_the_whole_story(trained: Cli) -> None:
    run_id = trained.ok("runs", "-q").split()[0]
    document = trained.json("show", run_id[:8])
    assert document["spec"]["recipe"]["epochs"] == 3
    assert [event["after"] for event in document["history"]] == [
        "submitting",
        "queued",
        "running",
        "completed",
    ]
    assert document["environment"]["software"]["torch"]
    text = trained.ok("show", run_id)
    assert "running -> completed  (journal: end completed)" in text


def test_report_with_detail_says_what_the_seeds_leave_open(trained: Cli) -> None:
    cells = trained.json("report", "tiny", "--detail")
    for cell in cells:
        found = cell["description"]
        # Two seeds have a spread, and no interval of it or of the mean that would say anything.
        assert found["mean"] == cell["mean"] and found["min"] <= cell["mean"] <= found["max"]
        assert (found["n"], found["interval"]) == (2, None)
    assert "Expected by chance" in trained.ok("report", "tiny", "--detail", "--format", "markdown")


@pytest.mark.paper("DR-52", "DR-72", "RV-26", "RV-45")
def test_report_has_mean_std_and_gain_in_every_format(trained: Cli) -> None:
    cells = trained.json("report", "tiny")
    supervised, relvit = cells
    values = list(relvit["values"].values())
    assert relvit["mean"] == pytest.approx(sum(values) / 2)
    assert relvit["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert relvit["gain"] == pytest.approx(relvit["mean"] - supervised["mean"])
    assert supervised["gain"] is None
    shown = f"{relvit['mean']:.2f} ± {relvit['std']:.2f}"
    assert shown in trained.ok("report", "tiny")
    assert shown in trained.ok("report", "tiny", "--format", "markdown")
    latex = trained.ok("report", "tiny", "--format", "latex")
    assert r"\toprule" in latex and shown.replace("±", r"$\pm$") in latex
    assert repr(relvit["mean"]) in trained.ok("report", "tiny", "--format", "csv")
    assert json.loads(trained.ok("report", "tiny", "--format", "json")) == cells


def test_report_writes_every_result_as_long_data(trained: Cli) -> None:
    heading, *lines = trained.ok("report", "tiny", "--long", "-").splitlines()
    assert heading.startswith("run_id,cell_id,grid_id,backbone")
    assert {line.split(",")[0] for line in lines} == set(trained.ok("runs", "-q").split())
    refused = trained("report", "tiny", "--long", "-", "--wide")
    assert refused.returncode == 2 and "Remove the other options" in refused.stderr


def test_compare_over_datasets_says_where_there_is_only_one(trained: Cli) -> None:
    text = trained.ok("compare", "tiny", "--over-datasets", "fixed")
    assert "not testable: only one dataset has both heads" in text
    refused = trained("compare", "tiny", "--over-datasets", "fixed", "--correction", "dunnett")
    assert refused.returncode == 2 and "Use correction: holm" in refused.stderr


def test_compare_says_of_every_head_whether_its_gain_is_more_than_luck(trained: Cli) -> None:
    document = trained.json("compare", "tiny", "--margin", "50", "--min-effect", "5")
    (found,) = document["comparisons"]
    assert found["head"] == "relvit" and found["verdict"] in (
        "separable",
        "tie",
        "inconclusive",
        "not testable",
    )
    gain = trained.json("report", "tiny")[1]["gain"]
    assert found["difference"] == pytest.approx(gain)
    assert f"{gain:+.2f}" in trained.ok("compare", "tiny")
    assert r"\toprule" in trained.ok("compare", "tiny", "--format", "latex")
    assert "Welch" in trained.ok("compare", "tiny", "--format", "markdown")
    assert found["verdict"] in trained.ok("compare", "tiny", "--format", "csv", "--margin", "50")
    plain = trained.process("compare", "tiny", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert plain.stdout.isascii()


def test_printed_gains_are_computed_anew_without_a_workspace(cli: Cli) -> None:
    done = cli("papers", "audit")
    assert (
        done.returncode == 0
        and "+5.80    +5.85" in done.stdout
        and "136 printed gains; 4 of them" in done.stderr
    )
    assert len(cli.json("papers", "audit", "relvit:3")) == 12
    assert "86.09 ± 0.12" in cli.ok("papers", "show", "drloc:3")
    assert cli("papers", "show", "drloc:99").returncode == 3
    assert cli("papers", "show", "drlok").returncode == 2
    assert not cli.workspace.exists()


def test_data_goes_to_stdout_and_words_to_stderr(trained: Cli) -> None:
    done = trained("submit", "grid.yaml", "--json")
    assert json.loads(done.stdout)["completed"] == 4
    assert "0 new, 4 already completed" in done.stderr


def test_text_has_no_colour_when_nobody_watches(trained: Cli) -> None:
    done = trained("runs")
    assert "\x1b" not in done.stdout + done.stderr


def test_a_plain_ascii_terminal_gets_plain_ascii(trained: Cli) -> None:
    done = trained.process("report", "tiny", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "+-" in done.stdout and done.stdout.isascii()


def test_a_reader_that_leaves_early_is_no_error(trained: Cli) -> None:
    command = f"{sys.executable} -m vtjobs.cli runs | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=trained.folder,
        env=trained.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["runs", "head=drlok"], 3),
        (["runs", "ffff"], 3),
        (["runs", "hed=drloc"], 2),
        (["runs", "status=don"], 2),
        (["show", "nothing-here"], 3),
        (["cancel"], 2),
        (["report", "--format", "pdf"], 2),
        (["compare", "--test", "student"], 2),
        (["compare", "--margin", "0"], 2),
        (["compare", "head=supervised"], 2),
        (["nonsense"], 2),
        (["submit", "missing.yaml"], 2),
        (["evaluate", "all", "--sets", "val"], 2),
        (["evaluate", "all", "--knn", "ten"], 2),
        (["evaluate", "all", "--knn", "5", "--sets", "train"], 2),
        (["evaluate", "all", "--separability", "10", "--knn", "5"], 2),
        (["evaluate", "all", "--separability", "10", "--sets", "v2"], 2),
        (["evaluate", "all", "--separability", "1"], 2),
        (["evaluate", "all", "--knn", "5", "--labels", "cifar100"], 2),
        (["evaluate", "all", "--knn", "5000"], 2),
        (["evaluate", "all", "--labels", "digits_parity"], 2),
        (["evaluate", "all", "--token", "both"], 2),
        # No backbone has such a token.
        (["evaluate", "all", "--token", "class"], 2),
        (["evaluate", "all", "--token", "class", "--knn", "5"], 2),
        (["ledger", "rebuild"], 7),
        (["gc", "all"], 7),
        (["data", "prepare", "cifar11"], 2),
    ],
)
def test_an_exit_code_says_what_happened(trained: Cli, words: list[str], code: int) -> None:
    done = trained(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_labels_judge_runs_on_the_same_images_and_leave_out_others(
    tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> None:
    folder = tmp_path_factory.mktemp("levels")
    grid = tiny_grid(seeds="1", epochs=1)
    text = grid.replace("[digits]", "[digits, digits_parity, digits300]")
    for cli in finished(folder, cache, text):
        done = cli("evaluate", "tiny", "--knn", "5", "--labels", "digits_parity", "--json")
        assert done.returncode == 0, done.stderr
        scores = [row for row in json.loads(done.stdout) if row["metric"] == "knn5"]
        assert sorted(row["set_name"] for row in scores) == ["test", "test@digits_parity"]
        assert "1 run left out. --labels digits_parity: other images" in done.stderr


def test_errors_are_documents_too(trained: Cli) -> None:
    done = trained("show", "nothing-here", "--json")
    assert json.loads(done.stdout)["error"]["exit_code"] == 3


def test_a_workspace_that_is_not_there_changes_nothing_and_says_so(cli: Cli) -> None:
    done = cli("status")
    assert done.returncode == 5
    assert "not a vtjobs workspace" in done.stderr
    assert not cli.workspace.exists()


def test_a_command_in_another_folder_names_the_workspace_that_was_used_last(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    state = {"XDG_STATE_HOME": str(elsewhere / "state")}
    cli.ok("submit", cli.write("grid.yaml", GRID), "--hold", **state)
    done = Cli(elsewhere, cli.cache)("status", **state)
    assert done.returncode == 5
    assert "the last one used" in done.stderr
    command = done.stderr.splitlines()[-1].rpartition(": vtjobs ")[2]
    assert "pending" in cli.ok(*command.split()).lower()


def test_plan_writes_nothing(cli: Cli) -> None:
    cli.write("grid.yaml", GRID)
    document = cli.json("plan", "grid.yaml")
    assert (document["runs"], document["new"], document["completed"]) == (4, 4, 0)
    assert not cli.workspace.exists()
    assert cli.ok("submit", "grid.yaml", "--dry-run")
    assert not cli.workspace.exists()


def test_a_wait_for_completed_runs_ends_at_once(trained: Cli) -> None:
    done = trained("wait", "tiny", "head=relvit")
    assert done.returncode == 0 and "2 completed" in done.stderr


def test_plan_estimates_from_the_ledgers_own_history(trained: Cli) -> None:
    document = trained.json("plan", "grid.yaml", "--set", "seeds=4")
    assert document["new"] == 4
    assert document["completed"] == 4
    assert document["estimate"]["runs_without_history"] == 0
    assert document["estimate"]["run_hours"] > 0


def test_evaluate_scores_without_training(trained: Cli) -> None:
    before = {run["run_id"]: run["attempts"] for run in trained.json("runs")}
    rows = trained.json("evaluate", "head=relvit", "--sets", "train,test")
    assert {(row["set_name"], row["metric"]) for row in rows} >= {
        ("train", "top1"),
        ("test", "top1"),
    }
    assert {run["run_id"]: run["attempts"] for run in trained.json("runs")} == before
    again = {cell["head"]: cell["n"] for cell in trained.json("report", "tiny", "--set", "train")}
    assert again == {"supervised": 0, "relvit": 2}
    heading, *_ = trained.ok("report", "tiny", "--wide", "--set", "test,train").splitlines()
    assert heading.split() == ["backbone", "dataset", "head", "test", "train"]
    assert [cell["set"] for cell in trained.json("report", "tiny", "--set", "train,test")] == [
        *(["train"] * 2),
        *(["test"] * 2),
    ]
    refused = trained("report", "tiny", "--set", "test,train")
    assert (refused.returncode, "several sets need --wide" in refused.stderr) == (2, True)


def test_features_are_reported_by_the_classes_of_another_level(trained: Cli) -> None:
    options = ("--knn", "5,10", "--labels", "digits_parity")
    rows = trained.json("evaluate", "head=relvit", *options)
    by_level = {row["metric"] for row in rows if row["set_name"] == "test@digits_parity"}
    assert by_level == {"knn5", "knn10", "map", "map_conditioned", "map_oracle"}
    chosen = ("--set", "test@digits_parity", "--metric", "knn10")
    cells = {cell["head"]: cell for cell in trained.json("report", "tiny", *chosen)}
    assert cells["supervised"]["n"] == 0 and cells["relvit"]["n"] == 2
    assert 50 < cells["relvit"]["mean"] <= 100


def test_logs_and_failures_of_a_healthy_grid(trained: Cli) -> None:
    assert trained.json("failures") == []
    run_id = trained.ok("runs", "-q").split()[0]
    assert trained("logs", run_id).returncode == 0


def test_init_gives_a_grid_that_can_be_planned(cli: Cli) -> None:
    cli.ok("init", "mine.yaml")
    assert cli.json("plan", "mine.yaml")["runs"] == 18
    assert cli("init", "mine.yaml").returncode == 2


def test_init_writes_for_the_cluster_that_the_settings_name(cli: Cli) -> None:
    cli.write("vtjobs.yaml", "backend: slurm\nslurm: {partition: gpu}\n")
    assert "Its runs go to slurm, as your settings say" in cli("init", "mine.yaml").stderr
    written = (cli.folder / "mine.yaml").read_text()
    assert "backend" not in written and "resources: {gpus_per_node: 1}" in written


def test_init_copies_a_ready_grid_and_says_what_this_machine_lacks(cli: Cli) -> None:
    said = cli("init", "mine.yaml", "--from", "relvit-table4").stderr
    assert "It asks for 1 GPU a node, and this machine has none" in said
    plan = cli.json("plan", "mine.yaml", "--set", "resources.gpus_per_node=0", "--no-data-check")
    assert (plan["name"], plan["cells"], plan["runs"]) == ("my-relvit-table4", 32, 32)
    assert cli("plan", "mine.yaml").returncode == 2
    assert cli("init", "other.yaml", "--from", "relvit-table").returncode == 2


def test_the_schema_is_a_json_schema_of_grids(cli: Cli) -> None:
    schema = json.loads(cli.ok("schema"))
    assert {"name", "backbones", "datasets", "heads", "seeds", "recipe", "stages"} <= schema[
        "properties"
    ].keys()


def test_settings_say_where_they_come_from(cli: Cli) -> None:
    (cli.folder / "vtjobs.yaml").write_text("data: /somewhere/data\n")
    settings = cli.json("config", "show", VTJOBS_LOCAL_SLOTS="3")
    assert settings["data"]["origin"].endswith("vtjobs.yaml")
    assert settings["local.slots"] == {"value": 3, "origin": "VTJOBS_LOCAL_SLOTS"}
    assert settings["workspace"]["origin"] == "default"


def test_doctor_reports_on_a_fresh_machine(cli: Cli) -> None:
    document = cli.json("doctor")
    assert document["ok"] is True
    assert {"python", "packages", "ledger"} <= {check["name"] for check in document["checks"]}


def test_an_interrupt_while_waiting_ends_with_130_and_loses_nothing(cli: Cli) -> None:
    cli.write("grid.yaml", tiny_grid(name="slow", seeds="2", epochs=ENDLESS))
    process = cli.start("submit", "grid.yaml", "--wait")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if cli.workspace.exists() and cli("status", "--json").stdout.count('"running": 0') < 2:
            break
        time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert cli.json("status")["runs"]["pending"] == 0
    cli.ok("cancel", "slow", "--yes")


# A cluster ----------------------------------------------------------------------------------------

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
ON_SLURM = tiny_grid(seeds="2").replace("name: tiny", "name: tiny\nbackend: slurm")


@pytest.fixture
def cluster(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """SLURM's commands before a cluster that takes an array and lets it wait.

    No node is behind them.
    """
    commands = Commands(tmp_path_factory.mktemp("slurm") / "bin")
    commands.prints("sinfo", "cpu*|up|1-00:00:00|NO|4|64|1|0|(null)|(null)")
    commands.prints("scontrol", "MaxArraySize = 1001\nMaxJobCount = 10000")
    commands.fails("sacctmgr", "You are not running a supported accounting_storage plugin")
    commands.fails("sacct", "Slurm accounting storage is disabled")
    commands.prints("squeue", "")
    commands.prints("srun", "")
    commands.prints("sbatch", "Submitted batch job 34")
    cli.env["PATH"] = commands.path
    cli.write("vtjobs.yaml", "poll_s: 1\n")
    return commands


def test_a_scheduler_that_is_away_leaves_what_is_known_and_says_since_when(
    cli: Cli, cluster: Commands
) -> None:
    cli.write("grid.yaml", ON_SLURM)
    cli.ok("submit", "grid.yaml")
    rehearsal, call = cluster.calls("sbatch")
    assert "--test-only" in rehearsal and "--array=0-1" in call
    cluster.fails("squeue", AWAY)
    time.sleep(1.1)
    first = cli("status")
    assert first.returncode == 5
    assert "tiny-" in first.stdout and "QUEUED" in first.stdout
    (line,) = first.stderr.splitlines()
    assert line.startswith("error: slurm unreachable since 20") and AWAY in line
    assert line.endswith("showing the last known states")
    again = cli("status", "--json")
    assert again.returncode == 5 and line in again.stderr, "it is away since the same moment"
    document = json.loads(again.stdout)
    assert document["runs"]["queued"] == 2
    (away,) = document["unreachable"]
    assert away["backend"] == "slurm" and away["since"]


def test_a_scheduler_that_is_slow_is_a_note_of_commands_that_read_and_no_error(
    cli: Cli, cluster: Commands
) -> None:
    cli.write("grid.yaml", ON_SLURM)
    cli.ok("submit", "grid.yaml")
    run_id = cli.ok("runs", "-q").split()[0]
    cluster.answers("squeue", "exec sleep 30")
    cli.env["VTJOBS_LOOK_S"] = "1"
    time.sleep(1.1)
    # Each of them waits for its look.
    for words in (["status"], ["why", run_id], ["report"]):
        done = cli(*words)
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if "squeue" in line]
        assert line.startswith(
            "note: slurm did not answer in time (squeue did not answer within 1 s); showing the"
            " states of its last answer, "
        )


def test_a_setting_says_how_long_a_look_waits_for_a_scheduler(cli: Cli, cluster: Commands) -> None:
    cli.write("grid.yaml", ON_SLURM)
    cli.ok("submit", "grid.yaml")
    cluster.answers("squeue", "sleep 1.3")
    cli.write("vtjobs.yaml", "poll_s: 1\nlook_s: 1\n")
    time.sleep(1.1)
    assert "squeue did not answer within 1 s" in cli("status").stderr
    cli.write("vtjobs.yaml", "poll_s: 1\nlook_s: 60\n")
    time.sleep(1.1)
    done = cli("status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["slow"] == []


def test_why_tells_the_clusters_reason_and_what_to_do(cli: Cli, cluster: Commands) -> None:
    cli.write("grid.yaml", ON_SLURM)
    cli.ok("submit", "grid.yaml")
    token = next(
        word[11:] for word in cluster.calls("sbatch")[-1].split() if word.startswith("--job-name=")
    )
    cluster.prints("squeue", f"34|0-1|PENDING|PartitionTimeLimit||N/A|N/A|{token}")
    time.sleep(1.1)
    told = cli("status")
    assert told.returncode == 0 and "2 queued run(s) can never start" in told.stderr
    run_id = cli.ok("runs", "-q").split()[1]
    document = cli.json("why", run_id[:8])
    assert (document["verdict"], document["job"], document["reason"]) == (
        "never",
        "34_1",
        "PartitionTimeLimit",
    )
    text = cli.ok("why", run_id)
    assert text.splitlines()[0].startswith(
        f"{run_id[:8]} is queued: slurm job 34_1: it asks for more time"
    )
    assert text.splitlines()[1] == "never: Lower resources.walltime"


def test_a_mistake_in_a_sites_settings_is_told_with_its_place_and_nothing_is_asked(
    cli: Cli, cluster: Commands
) -> None:
    cli.write("grid.yaml", tiny_grid(extra="backend: {slurm: {partition: 'a b'}}"))
    done = cli("submit", "grid.yaml")
    assert done.returncode == 2
    assert "backend.slurm.partition: character ' ' not allowed" in done.stderr
    cli.write("grid.yaml", tiny_grid(extra="backend: {slurm: {partition: gpu}}"))
    done = cli("submit", "grid.yaml")
    assert (
        done.returncode == 2 and "backend.slurm.partition: unknown partition 'gpu'" in done.stderr
    )
    assert cluster.calls("sbatch") == [] and not cli.workspace.exists()


def test_a_cluster_that_is_away_stores_nothing(cli: Cli, cluster: Commands) -> None:
    cluster.fails(
        "sinfo", "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    )
    cli.write("grid.yaml", ON_SLURM)
    done = cli("submit", "grid.yaml")
    assert done.returncode == 5 and len(done.stderr.splitlines()) == 1
    assert not cli.workspace.exists()


def test_a_machine_without_slurm_is_no_place_to_submit_from(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cli.env["PATH"] = str(tmp_path_factory.mktemp("empty"))
    cli.write("grid.yaml", tiny_grid())
    done = cli("submit", "grid.yaml", "--backend", "slurm")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert (
        line.startswith("error: ") and "is this a login node" in line and "--backend local" in line
    )
    assert not cli.workspace.exists()
    assert not [check for check in cli.json("doctor")["checks"] if "slurm" in check["name"]]


def test_a_backend_that_is_not_there_is_refused_by_name(cli: Cli) -> None:
    cli.write("grid.yaml", tiny_grid())
    done = cli("submit", "grid.yaml", "--backend", "nonsense")
    assert done.returncode == 2
    assert (
        done.stderr == "error: --backend: unknown backend 'nonsense'. Allowed: local, ray, slurm\n"
    )
    assert not cli.workspace.exists()


def test_the_catalogue_lists_its_grids_and_says_who_says_what_of_a_recipe(cli: Cli) -> None:
    grids = {one["grid"]: one for one in cli.json("catalog")}
    assert (grids["drloc-table4"]["cells"], grids["relvit-table2"]["runs"]) == (80, 120)
    assert grids["quickstart"]["images"] == 18 * 50 * 899
    assert "drloc-table16" in cli.ok("catalog")
    assert "on any dataset: mean: [0.485, 0.456, 0.406]" in cli.ok("catalog", "drloc-scratch")
    fields = {field["name"]: field for field in cli.json("catalog", "drloc-scratch")["fields"]}
    assert (fields["lr"]["source"], fields["tf32"]["source"]) == ("paper", "default")
    assert fields["mixup"]["source"] == "published code; the paper is silent"
    assert (fields["epochs"]["value"], fields["epochs"]["code"]) == (100, 101)
    assert cli("catalog", "drloc-scrach").returncode == 2


def test_curves_are_exported_until_the_runs_have_ended(trained: Cli, tmp_path: Path) -> None:
    out = tmp_path / "curves"
    document = trained.json("export", "tiny", str(out), "--to", "csv", "--follow")
    assert document["left"] == 0 and document["means"]
    heading, *lines = (out / "curves.csv").read_text().splitlines()
    assert heading.startswith("name,run_id,seed,set,metric,epoch,value,backbone")
    assert any(",test,top1," in line for line in lines)


def test_an_export_that_cannot_be_made_leaves_nothing_behind(trained: Cli, tmp_path: Path) -> None:
    out = tmp_path / "curves"
    assert trained("export", "tiny", str(out), "--to", "excel").returncode == 2
    assert trained("export", "tiny", str(out), "--follow").returncode == 2
    assert trained("export", "head=nothing", str(out), "--to", "csv").returncode == 3
    assert not out.exists()


def test_finished_weights_are_exported_with_a_card(trained: Cli, tmp_path: Path) -> None:
    run = trained.json("runs", "tiny", "status=completed")[0]["run_id"]
    out = tmp_path / "exported"
    document = trained.json("export", run[:8], str(out))
    assert (document["run_id"], document["folder"]) == (run, str(out))
    card = (out / "README.md").read_text()
    assert run in card and "| test | top1 |" in card
    again = trained("export", run, str(out))
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    assert trained("export", run, str(tmp_path / "no" / "folder")).returncode == 2
    assert trained("export", run, str(tmp_path / "other"), "--format", "onnx").returncode == 2


def test_finished_weights_show_their_maps(trained: Cli, tmp_path: Path) -> None:
    run = trained.json("runs", "tiny", "status=completed")[0]["run_id"]
    out = tmp_path / "maps"
    words = ("visualize", run[:8], str(out), "--kind", "cam", "--images", "0,7")
    document = trained.json(*words)
    assert (document["run_id"], document["kind"]) == (run, "cam")
    assert [title.split(":")[0] for title in document["shown"]] == ["image 0", "image 7"]
    assert [Path(file).name for file in document["files"]] == ["cam.svg", "cam.pdf", "cam.csv"]
    assert trained.ok(*words).split() == document["files"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kind", "heat"], "--kind heat: unknown"),
        (["--kind", "cam", "--at", "0,0"], "--at is for --kind relations"),
        (
            ["--kind", "filters", "--classes", "1"],
            "--classes is for --kind attention, cam, features or neighbours",
        ),
        (
            ["--kind", "features", "--classes", "1", "--images", "0"],
            "--kind features: --images and --classes both choose images",
        ),
        (
            ["--kind", "cam", "--labels", "cifar100"],
            "--labels is for --kind features or neighbours",
        ),
        (["--images", "-1"], "--images -1: must be whole numbers"),
        (["--kind", "relations", "--at", "2,0"], "--at 2,0: must be two numbers from 0 to 1"),
        (["--images", "9999"], "test has 898 images, 0 to 897"),
        (["--set", "v2"], "--set v2: dataset digits has no such set"),
        (["--set", ""], "--set : dataset digits has no such set"),
        (["--images", "9" * 20], "must be whole numbers from 0 on"),
        (
            ["--kind", "filters", "--set", "train"],
            "--set is for --kind attention, cam, relations, features, neighbours, depth or masks",
        ),
    ],
)
def test_maps_that_cannot_be_made_leave_nothing_behind(
    trained: Cli, tmp_path: Path, words: list[str], told: str
) -> None:
    run = trained.json("runs", "tiny", "status=completed")[0]["run_id"]
    done = trained("visualize", run, str(tmp_path / "maps"), *words)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "maps").exists()

"""Where settings come from, and which wins."""

import grp
import os
from pathlib import Path

import pytest

from vtjobs.jobs.config.config import DEFAULTS, load_config
from vtjobs.jobs.errors import BadInput


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a settings file, and a project below it with another."""
    (tmp_path / "home/.config/vtjobs").mkdir(parents=True)
    (tmp_path / "home/.config/vtjobs/config.yaml").write_text(
        "max_runs: 1\ndata: /of/user\nworkspace: of-user\n"
    )
    (tmp_path / "project/deep/down").mkdir(parents=True)
    (tmp_path / "project/vtjobs.yaml").write_text(
        "max_runs: 2\nworkspace: results\nlocal: {slots: 3}\n"
    )
    return tmp_path


def test_the_command_line_goes_over_the_environment_over_the_project_over_the_user(
    home: Path,
) -> None:
    environ = {"HOME": str(home / "home")}
    found = [
        load_config(environ=environ, folder=home).get("max_runs"),
        load_config(environ=environ, folder=home / "project").get("max_runs"),
        load_config(environ={**environ, "VTJOBS_MAX_RUNS": "3"}, folder=home / "project").get(
            "max_runs"
        ),
        load_config(
            {"max_runs": 4}, environ={**environ, "VTJOBS_MAX_RUNS": "3"}, folder=home / "project"
        ).get("max_runs"),
    ]
    assert found == [1, 2, 3, 4]


def test_each_value_says_where_it_was_found(home: Path) -> None:
    environ = {"HOME": str(home / "home"), "VTJOBS_LEDGER": "postgresql://x/y"}
    settings = load_config({"workspace": "/w"}, environ=environ, folder=home / "project").settings
    assert settings["workspace"].origin == "command line"
    assert settings["ledger"].origin == "VTJOBS_LEDGER"
    assert settings["max_runs"].origin == str(home / "project/vtjobs.yaml")
    assert settings["data"].origin == str(home / "home/.config/vtjobs/config.yaml")
    assert settings["backend"].origin == "default"


def test_the_project_file_is_found_upwards_and_its_paths_start_where_it_lies(home: Path) -> None:
    config = load_config(environ={}, folder=home / "project/deep/down")
    assert config.workspace.root == home / "project/results"
    assert config.get("local.slots") == 3


def test_a_path_in_the_environment_starts_in_the_working_folder(home: Path) -> None:
    config = load_config(environ={"VTJOBS_WORKSPACE": "here"}, folder=home / "project/deep")
    assert config.workspace.root == home / "project/deep/here"


def test_without_files_and_variables_the_defaults_hold(tmp_path: Path) -> None:
    config = load_config(environ={}, folder=tmp_path)
    assert config.workspace.root == tmp_path / "runs"
    assert config.get("max_runs") == DEFAULTS["max_runs"] == 100_000
    assert config.data_root.is_absolute()


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert load_config(environ={"VTJOBS_LEDGER": ""}, folder=tmp_path).get("ledger") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "workspase: x\n",
            "vtjobs.yaml:1: workspase: unknown setting 'workspase'. Did you mean 'workspace'?",
        ),
        (
            "data: /x\nlocal: {slot: 1}\n",
            "vtjobs.yaml:2: local: unknown setting 'local.slot'. Did you mean 'local.slots'?",
        ),
        ("local: {slots: 0}\n", "expected a whole number of at least 1, got 0"),
        ("local: {slots: true}\n", "expected a whole number of at least 1, got True"),
        ("max_runs: 1.5\n", "expected a whole number of at least 1, got 1.5"),
        ("max_runs: '²'\n", "expected a whole number of at least 1"),
        ("data: 3\n", "data: expected text, got 3"),
        ('data: "a\\nb"\n', "data: expected text"),
        (
            "backend: slurmm\n",
            "backend: unknown backend 'slurmm'. Did you mean 'slurm'? Allowed: local, ray, slurm",
        ),
        ("data: /x\nslurm: gpu\n", "vtjobs.yaml:2: slurm: expected a mapping"),
        ("slurm: [gpu]\n", "slurm: expected a mapping"),
        (
            "group: no-such-group\n",
            "vtjobs.yaml:1: group: no group 'no-such-group' on this machine. Your groups: ",
        ),
        ("group: 3\n", "group: expected text, got 3"),
        ("poll_s: 0\n", "poll_s: expected a whole number of at least 1, got 0"),
        ("poll_s: 2.5\n", "poll_s: expected a whole number of at least 1, got 2.5"),
        ("look_s: 0\n", "look_s: expected a whole number of at least 1, got 0"),
        ("- a\n", "expected a mapping. Keys: workspace, data, ledger"),
        ("a: [\n", "'[' opened here is never closed"),
    ],
)
def test_a_mistake_in_a_settings_file_is_told_with_file_and_line(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "vtjobs.yaml").write_text(text)
    with pytest.raises(BadInput) as caught:
        load_config(environ={}, folder=tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/vtjobs.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VTJOBS_LOCAL_SLOTS", "many"),
        ("VTJOBS_LOCAL_SLOTS", "-1"),
        ("VTJOBS_MAX_RUNS", "1e3"),
        ("VTJOBS_BACKEND", "x"),
        ("VTJOBS_POLL_S", "often"),
        ("VTJOBS_GROUP", "no-such-group"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(BadInput, match=name):
        load_config(environ={name: value}, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("VTJOBS_BAKCEND", "VTJOBS_BACKEND"), ("VTJOBS_WORKSPCE", "VTJOBS_WORKSPACE")],
)
def test_a_slip_of_the_pen_in_a_variables_name_is_refused(
    tmp_path: Path, name: str, meant: str
) -> None:
    with pytest.raises(BadInput, match=f"{name}: no such variable. Did you mean {meant}"):
        load_config(environ={name: "x"}, folder=tmp_path)


@pytest.mark.parametrize(
    "name", ["VTJOBS_SIMULATED_RUNS", "VTJOBS_DEVICE", "VTJOBS_FENCE_S", "VTJOBS_OF_OUR_LAB"]
)
def test_a_variable_that_is_no_setting_is_left_alone(tmp_path: Path, name: str) -> None:
    assert load_config(environ={name: "x"}, folder=tmp_path).get("backend") == "local"


def test_the_backend_and_how_often_it_is_asked_are_settings_like_others(tmp_path: Path) -> None:
    plain = load_config(environ={}, folder=tmp_path)
    assert (plain.get("backend"), plain.get("poll_s"), plain.get("slurm")) == ("local", 30, {})
    (tmp_path / "vtjobs.yaml").write_text("backend: slurm\npoll_s: 5\n")
    found = load_config(environ={"VTJOBS_POLL_S": "7"}, folder=tmp_path)
    assert (found.get("backend"), found.get("poll_s")) == ("slurm", 7)
    assert found.settings["poll_s"].origin == "VTJOBS_POLL_S"


def test_a_sites_settings_of_two_files_are_one_with_the_nearer_on_top(home: Path) -> None:
    user, project = home / "home/.config/vtjobs/config.yaml", home / "project/vtjobs.yaml"
    user.write_text("slurm: {account: lab, partition: gpu}\n")
    project.write_text("slurm: {partition: fast, modules: [gcc]}\n")
    environ = {"HOME": str(home / "home")}
    found = load_config(environ=environ, folder=home / "project").settings["slurm"]
    assert found.value == {"account": "lab", "partition": "fast", "modules": ["gcc"]}
    assert found.origin == str(project)
    alone = load_config(environ=environ, folder=home).settings["slurm"]
    assert (alone.value, alone.origin) == ({"account": "lab", "partition": "gpu"}, str(user))


def test_reading_the_settings_leaves_the_defaults_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "vtjobs.yaml").write_text("slurm: {partition: gpu}\n")
    load_config(environ={}, folder=tmp_path)
    assert DEFAULTS["slurm"] == {}


def test_a_sites_settings_are_no_variable(tmp_path: Path) -> None:
    assert (
        load_config(environ={"VTJOBS_SLURM": "{partition: gpu}"}, folder=tmp_path).get("slurm")
        == {}
    )


def test_a_group_is_one_that_the_user_is_in(tmp_path: Path) -> None:
    mine = {os.getegid(), *os.getgroups()}
    own, other = (
        next(found.gr_name for found in grp.getgrall() if (found.gr_gid in mine) is is_mine)
        for is_mine in (True, False)
    )
    assert load_config(environ={"VTJOBS_GROUP": own}, folder=tmp_path).get("group") == own
    (tmp_path / "vtjobs.yaml").write_text(f"max_runs: 3\ngroup: {other}\n")
    with pytest.raises(BadInput) as caught:
        load_config(environ={}, folder=tmp_path)
    assert caught.value.exit_code == 2
    where = f"{tmp_path}/vtjobs.yaml:2: group: you are not in the group {other!r}."
    assert str(caught.value).startswith(f"{where} Ask to be added to it, then log in again. Your")

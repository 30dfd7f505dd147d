"""What a site may be told.

Nothing in it may reach a shell, sbatch or a comma list as more than a value.
"""

import shlex
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.config.site import configured
from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid.checks import check_grid
from vtjobs.jobs.strict_yaml import parse
from vtjobs.orchestrator.backends.slurm.settings import EXTRA, OURS, Slurm

from ...support.grids import tiny_grid

# What a shell, a batch script or sbatch's file names act on.
ACTED_ON = (
    set(string.whitespace)
    | set("\"'\\`$;<>?!#~{}^")
    | {chr(code) for code in range(32)}
    | {"\x7f", "é"}
)
# A feature expression is an operand of sbatch's own; it goes there as one word of an argument list.
FEATURES = set("&|*()[],")

TEXTS = st.text(st.sampled_from([*string.printable, "é", "\x00", "²"]), max_size=12)


def accepted(**fields: Any) -> Slurm | None:
    try:
        return Slurm.model_validate(fields)
    except ValidationError:
        return None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", "gpu"),
        ("partition", "gpu,low-prio"),
        ("account", "lab_1.x"),
        ("qos", "high"),
        ("reservation", "maint-2026"),
        ("constraint", "v100|a100"),
        ("constraint", "[rack1*2&rack2*4]"),
        ("exclude", "gpu[3,7-9],cpu1"),
        ("mem", "200G"),
        ("mem", "0"),
        ("modules", ["cuda/12.1+cudnn", "gcc"]),
        ("setup", ["source /opt/env.sh && export A='b c'"]),
        ("container", ["apptainer", "exec", "--nv", "--bind=/a:/b", "/img/x@1.sif"]),
        ("python", "/opt/py-3.11/bin/python"),
        (
            "srun",
            ["--container-image=nvcr.io#nvidia/pytorch:24.05-py3", "--no-container-mount-home"],
        ),
        ("gres", ["nvme:1", "craynetwork:4"]),
        ("gpu_option", "gres"),
        ("dependency", ["afterok:12:13_4", "after:7+5"]),
        (
            "extra",
            {"licenses": "matlab:1", "nice": -5, "mail-user": "me+x@host.org", "network": True},
        ),
    ],
)
def test_what_sites_use_is_accepted(field: str, value: object) -> None:
    found = accepted(**{field: value})
    assert found is not None and getattr(found, field) == value


@pytest.mark.parametrize(
    "fields",
    [
        {"gres": ["gpu:8"]},
        {"dependency": ["singleton"]},
        {"srun": ["--uid=0"]},
        {"gpu_option": "gpus-per-task"},
    ],
)
def test_what_vtjobs_decides_or_does_not_know_is_refused(fields: dict[str, object]) -> None:
    assert accepted(**fields) is None


@pytest.mark.parametrize("field", ["modules", "setup"])
def test_one_line_stands_for_a_list_of_one(field: str) -> None:
    found = accepted(**{field: "gcc"})
    assert found is not None and getattr(found, field) == ["gcc"]


NAMES = ["account", "qos", "reservation"]
LISTS = ["partition", "exclude"]


@pytest.mark.parametrize("field", [*NAMES, *LISTS, "constraint", "mem", "python"])
@given(value=TEXTS)
def test_no_accepted_word_has_a_character_that_anything_acts_on(field: str, value: str) -> None:
    if accepted(**{field: value}) is None:
        return
    assert value and not set(value) & ACTED_ON
    assert not value.startswith("-")
    if field == "constraint":
        return
    assert not set(value) & set("&|*()")
    if field in NAMES:
        assert not set(value) & set(",%=[]/:@"), "a name is one name"


@given(value=TEXTS)
def test_no_accepted_module_is_more_than_one_word_of_the_script(value: str) -> None:
    if accepted(modules=[value]) is not None:
        assert shlex.split(value) == [value] and shlex.quote(value) == value
        assert not value.startswith("-")


@given(value=TEXTS)
def test_no_accepted_container_word_needs_quotes(value: str) -> None:
    if accepted(container=[value]) is not None:
        assert shlex.split(value) == [value] and not set(value) & (ACTED_ON | set("&|*()[]"))


@pytest.mark.parametrize("fields", [{"python": "--uid=0"}, {"container": ["--uid=0", "x"]}])
def test_a_command_that_srun_would_take_for_its_own_option_is_refused(
    fields: dict[str, Any],
) -> None:
    assert accepted(**fields) is None


@given(value=TEXTS)
def test_a_setup_line_is_shell_and_stays_one_line(value: str) -> None:
    if accepted(setup=[value]) is not None:
        assert value.isprintable() and value.isascii() and len(value.splitlines()) == 1


@given(
    name=st.one_of(st.sampled_from(sorted(EXTRA | OURS)), TEXTS),
    value=st.one_of(TEXTS, st.integers(), st.booleans()),
)
def test_no_accepted_extra_option_is_ours_or_has_a_character_that_anything_acts_on(
    name: str, value: object
) -> None:
    if accepted(extra={name: value}) is None:
        return
    assert name in EXTRA and name not in OURS
    assert not set(str(value)) & (ACTED_ON | set("&|*()[]%"))


@given(
    st.text(st.sampled_from(string.ascii_letters + string.digits + "_.-"), min_size=1, max_size=64)
)
def test_a_plain_name_is_accepted_wherever_a_name_is_meant(value: str) -> None:
    assert (accepted(qos=value) is not None) == value[0].isalnum()


@pytest.mark.parametrize(
    "field", ["partition", "account", "constraint", "exclude", "mem", "python", "modules", "setup"]
)
@pytest.mark.parametrize("value", ["", "a\n", "1\n", "a\nb", "x" * 2000])
def test_an_empty_a_broken_and_an_endless_value_are_refused(field: str, value: str) -> None:
    assert accepted(**{field: value}) is None


@pytest.mark.parametrize("name", sorted(OURS))
def test_an_option_that_vtjobs_decides_is_refused_as_such(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' is set by vtjobs"):
        Slurm.model_validate({"extra": {name: "1"}})


def test_no_option_is_both_allowed_and_ours() -> None:
    assert not EXTRA & OURS


# Through a grid and through the configuration -----------------------------------------------------

MISTAKES = [
    ("partition: 'a b'", "partition: character ' ' not allowed"),
    ("partition: '-x'", "partition: '-x' is not allowed"),
    ("account: 'x;y'", "account: character ';' not allowed"),
    ("qos: 'a,b'", "qos: character ',' not allowed"),
    ("constraint: 'a$b'", "constraint: character '$' not allowed"),
    ("exclude: 'gpu`x`'", "exclude: character '`' not allowed"),
    ("mem: 200Q", "mem: character 'Q' not allowed"),
    ("mem: 200GG", "mem: '200GG' is not allowed"),
    ('modules: ["gcc; rm"]', "modules[0]: character ';' not allowed"),
    ('setup: ["ok", "a\\nb"]', "setup[1]: character '\\n' not allowed"),
    ('container: [apptainer, "a b"]', "container[1]: character ' ' not allowed"),
    ("python: 'py\"'", "python: character '\"' not allowed"),
    ("extra: {output: /etc/x}", "extra: 'output' is set by vtjobs"),
    ("extra: {licences: m}", "extra: unknown option 'licences'. Did you mean 'licenses'?"),
    ("extra: {clusters: other}", "extra: clusters: a workspace belongs to one cluster"),
    ("extra: {wait: m}", "extra: unknown option 'wait'."),
    ("extra: {licenses: 'm n'}", "extra: licenses: a character in 'm n' is not allowed"),
    ("partion: gpu", "partion: unknown key 'partion'. Did you mean 'partition'?"),
    ("array_parallelism: 0", "array_parallelism: "),
    ("lead: 5", "lead: "),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "says"), MISTAKES)
def test_a_mistake_in_a_grid_is_told_with_line_key_and_character(setting: str, says: str) -> None:
    text = tiny_grid(extra=f"backend:\n  slurm:\n    qos: fine\n    {setting}").replace(
        "qos: fine\n    qos", "qos"
    )
    grid, problems = check_grid(parse(text.encode(), file="grid.yaml"))
    line = next(number for number, line in enumerate(text.splitlines(), 1) if setting in line)
    assert grid is None
    (problem,) = map(str, problems)
    assert problem.startswith(f"grid.yaml:{line}: backend.slurm.{says}")


@pytest.mark.parametrize(("setting", "says"), MISTAKES)
def test_a_mistake_in_the_configuration_is_told_with_file_key_and_character(
    tmp_path: Path, setting: str, says: str
) -> None:
    (tmp_path / "vtjobs.yaml").write_text(f"slurm:\n  {setting}\n")
    with pytest.raises(BadInput) as caught:
        configured(load_config(environ={}, folder=tmp_path), "slurm")
    assert str(caught.value).startswith(f"{tmp_path}/vtjobs.yaml: slurm.{says}")


def test_rays_own_variable_names_the_cluster_and_the_grid_beats_it(tmp_path: Path) -> None:
    (tmp_path / "vtjobs.yaml").write_text("ray: {address: 'http://a:8265', autoscale: true}\n")
    found = configured(
        load_config(environ={"RAY_ADDRESS": "https://b/ray/"}, folder=tmp_path), "ray"
    )
    assert (found["address"], found["autoscale"]) == ("https://b/ray", True)
    grid, _ = check_grid(
        parse(tiny_grid(extra="backend: {ray: {address: 'http://c:1'}}").encode(), file="grid.yaml")
    )
    assert grid is not None and grid.site("ray") == {"address": "http://c:1"}
    assert grid.backend_name("local") == "ray"


@pytest.mark.parametrize(
    "address",
    ["auto", "ray://h:10001", "h:6379", "http://u:p@h", "http://h:8265/?x=1", "http://h h"],
)
def test_an_address_that_is_none_is_told_with_where_it_stands(tmp_path: Path, address: str) -> None:
    with pytest.raises(
        BadInput, match=r"RAY_ADDRESS: ray\.address: expected the address of Ray's dashboard"
    ):
        configured(load_config(environ={"RAY_ADDRESS": address}, folder=tmp_path), "ray")


def test_the_configurations_settings_are_complete_once_checked(tmp_path: Path) -> None:
    (tmp_path / "vtjobs.yaml").write_text("slurm: {partition: gpu, modules: gcc, lead: 5m}\n")
    found = configured(load_config(environ={}, folder=tmp_path), "slurm")
    assert found.keys() == Slurm.model_fields.keys()
    assert (found["partition"], found["modules"], found["lead"], found["handover"]) == (
        "gpu",
        ["gcc"],
        300,
        True,
    )

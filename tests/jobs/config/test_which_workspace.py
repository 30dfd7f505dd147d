"""What a command says that found no workspace."""

from pathlib import Path

import pytest

from vtjobs.jobs.config.config import Config, load_config
from vtjobs.jobs.config.which_workspace import not_found, remember


def config(folder: Path, workspace: str | None = None, **environ: str) -> Config:
    state = {"XDG_STATE_HOME": str(folder / "state")}
    return load_config({"workspace": workspace}, environ=state | environ, folder=folder)


def test_the_default_path_is_explained(tmp_path: Path) -> None:
    said = str(not_found(config(tmp_path), tmp_path))
    assert said == (
        f"{tmp_path}/runs is not a vtjobs workspace (no workspace.json): the default, ./runs, as no "
        f"vtjobs.yaml with a workspace was found in {tmp_path} or above. The first `vtjobs submit` "
        "makes it"
    )


def test_a_path_from_the_command_line_or_a_variable_is_named_with_its_source(
    tmp_path: Path,
) -> None:
    given = not_found(config(tmp_path, "elsewhere"), tmp_path)
    assert f"{tmp_path}/elsewhere is not" in str(given) and "named by --workspace" in str(given)
    exported = not_found(config(tmp_path, VTJOBS_WORKSPACE="elsewhere"), tmp_path)
    assert "named by VTJOBS_WORKSPACE" in str(exported)


def test_a_path_from_a_file_is_named_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "vtjobs.yaml").write_text("poll_s: 30\nworkspace: shared\n")
    said = str(not_found(config(tmp_path), tmp_path))
    assert f"named by {tmp_path}/vtjobs.yaml:2. Is the file system mounted?" in said


def test_the_workspace_of_a_folder_above_is_named_where_the_path_is_the_default(
    tmp_path: Path,
) -> None:
    config(tmp_path).workspace.create()
    below = tmp_path / "configs" / "first try"
    below.mkdir(parents=True)
    assert str(not_found(config(below), below)).endswith(
        f"there is one further up: vtjobs status -W {tmp_path}/runs"
    )
    assert "further up" not in str(not_found(config(below, "elsewhere"), below))


def test_the_workspace_that_was_used_last_is_named_as_long_as_it_is_there(tmp_path: Path) -> None:
    used = config(tmp_path, "my runs")
    used.workspace.create()
    remember(used)
    other = config(tmp_path, "elsewhere")
    assert str(not_found(other, tmp_path)).endswith(
        f"the last one used on this machine: vtjobs status -W '{tmp_path}/my runs'"
    )
    used.workspace.identity.unlink()
    assert "last one used" not in str(not_found(other, tmp_path))


@pytest.mark.parametrize("state", ["/dev/null", "/proc/nowhere"])
def test_a_state_folder_that_cannot_be_written_is_no_fault(tmp_path: Path, state: str) -> None:
    found = config(tmp_path, XDG_STATE_HOME=state)
    remember(found)
    assert "not a vtjobs workspace" in str(not_found(found, tmp_path))

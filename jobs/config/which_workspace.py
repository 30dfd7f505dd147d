"""Why a command looks for its workspace where it does, and which others there are."""

import contextlib
import shlex
from pathlib import Path

from ..atomic_files import make_private_folder, write_over
from ..workspace.paths import NoWorkspace, Workspace
from .config import COMMAND_LINE, DEFAULT, DEFAULTS, Config, Setting


def not_found(config: Config, folder: Path | None = None) -> NoWorkspace:
    """Return the error of a command that found no workspace.

    Args:
        config: the settings.
        folder: the working directory.
    """
    folder = folder or Path.cwd()
    setting = config.settings["workspace"]
    lines = [f"{config.workspace.root} is not a vtjobs workspace (no workspace.json)"]
    if setting.origin == DEFAULT:
        lines[0] += (
            f": the default, {DEFAULTS['workspace']}, as no vtjobs.yaml with a workspace was found "
            f"in {folder} or above. The first `vtjobs submit` makes it"
        )
    else:
        lines[0] += (
            f", named by {_named_by(setting)}. Is the file system mounted? If there is none yet,"
            " the first submission makes it"
        )
    above = _above(folder) if setting.origin == DEFAULT else None
    if above is not None:
        lines.append(f"there is one further up: vtjobs status -W {shlex.quote(str(above))}")
    last = last_used(config)
    if last is not None and last not in (above, config.workspace.root):
        lines.append(
            f"the last one used on this machine: vtjobs status -W {shlex.quote(str(last))}"
        )
    return NoWorkspace("\n".join(lines))


def _named_by(setting: Setting) -> str:
    if setting.origin == COMMAND_LINE:
        return "--workspace"
    path = Path(setting.origin)
    if not path.is_absolute():
        return setting.origin
    from ..strict_yaml import read

    problem = read(path).problem(("workspace",), "")
    return f"{path}:{problem.line}"


def _above(folder: Path) -> Path | None:
    """Return the nearest workspace with the default name in a folder above this one."""
    for parent in folder.parents:
        root = parent / str(DEFAULTS["workspace"])
        if Workspace(root).identity.is_file():
            return root
    return None


def remember(config: Config) -> None:
    """Note which workspace this user used last on this machine."""
    path = _memory(config)
    if path is None:
        return
    # A hint for later: a full or read-only home is no reason to fail.
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_over(path, f"{config.workspace.root.resolve()}\n".encode())


def last_used(config: Config) -> Path | None:
    """Return the workspace that was submitted to last, if it is still there."""
    path = _memory(config)
    try:
        root = Path(path.read_text().strip()) if path is not None else None
    except (OSError, ValueError):
        return None
    return root if root is not None and Workspace(root).identity.is_file() else None


def _memory(config: Config) -> Path | None:
    home = config.environ.get("HOME")
    base = config.environ.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home else None)
    return Path(base) / "vtjobs" / "last-workspace" if base else None

"""Where settings come from.

Command line > VTJOBS_* > vtjobs.yaml upwards > the user's file > defaults.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, Problem, suggest
from ..values import Value, field
from ..workspace.paths import Workspace
from .backends import BACKENDS, is_known, require_known
from .group import require_group
from .notices import notice_settings

if TYPE_CHECKING:
    from ..strict_yaml import Document


class Setting(Value, frozen=True, kw_only=True):
    """One setting's value and where it was found."""

    value: Any
    origin: str


# Origins of settings that come from no file and no variable.
DEFAULT = "default"
COMMAND_LINE = "command line"

DEFAULTS: dict[str, Any] = {
    "workspace": "./runs",
    "data": "~/.local/share/vtjobs/data",
    "ledger": None,
    "backend": "local",
    # The UNIX group that shares the workspace; None: files are made as the umask says.
    "group": None,
    "local.slots": None,
    # Variables that agents on this machine inherit beside the usual ones.
    "local.environment": [],
    **{name: {} for name in BACKENDS if name != "local"},
    # How often a scheduler is asked about running work, in seconds.
    "poll_s": 30,
    # How long a command that only reads waits for the answer, in seconds.
    "look_s": 2,
    "max_runs": 100_000,
    # How long a run may show no progress before it is killed and tried again, in seconds.
    "hang_s": 300,
    # Who is told of grids that end, runs that fail and the like: jobs/config/notices.py.
    "notify": {},
    # What the decoded sets of images that a workspace keeps may take, in GiB.
    "decoded_gib": 50,
}
MOST_CHARACTERS = 4096
# Variables that are read elsewhere: by agents and ranks, or by tests.
_PREFIX = "VTJOBS_"
_NO_SETTINGS = frozenset(
    _PREFIX + name
    for name in (
        "DEVICE",
        "FENCE_S",
        "TURN_S",
        "GPU_LOOK_S",
        "HOST",
        "LOG_CAP_BYTES",
        "NODE",
        "SIMULATED_RUNS",
    )
)
_PATHS = frozenset(("workspace", "data"))
_WHOLE = frozenset(("decoded_gib", "hang_s", "local.slots", "look_s", "max_runs", "poll_s"))
_LISTS = frozenset(("local.environment",))


def _is_mapping(key: str) -> bool:
    """Whether a setting is a mapping itself: those of a backend, checked where they are used."""
    if key in DEFAULTS:
        return isinstance(DEFAULTS[key], dict)
    # This machine's queue has settings with names and variables of their own: local.slots.
    return key != "local" and is_known(key)


class Config(Value, frozen=True):
    """All settings with their origins."""

    settings: dict[str, Setting]
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment that they were gathered in; a backend may have variables of its own."""
    folder: Path | None = None
    """Where the search for vtjobs.yaml began."""

    def get(self, key: str) -> Any:
        return self.settings[key].value

    @property
    def workspace(self) -> Workspace:
        return Workspace(Path(self.get("workspace")))

    @property
    def where(self) -> str:
        """What a command that is printed ends with, so that it means this workspace when pasted.

        The option if it was typed, or nothing: what else names the workspace still holds there.
        """
        if self.settings["workspace"].origin != COMMAND_LINE:
            return ""
        return f" -W {shlex.quote(str(self.get('workspace')))}"

    @property
    def data_root(self) -> Path:
        return Path(self.get("data"))


def load_config(
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """Gather the settings.

    Args:
        overrides: settings from the command line; None values are not given.
        environ: the environment, by default this process's.
        folder: where the search for vtjobs.yaml begins, by default the working directory.

    Raises:
        BadInput: a file or variable sets an unknown key or an unusable value.
    """
    environ = os.environ if environ is None else environ
    folder = folder or Path.cwd()
    found = {key: Setting(value=value, origin=DEFAULT) for key, value in DEFAULTS.items()}
    for path in (_user_file(environ), _project_file(folder)):
        if path is not None and path.is_file():
            more = _from_file(path)
            for key in filter(_is_mapping, more.keys() & found.keys()):
                # The nearer file's settings come on top of the other's.
                more[key] = Setting(
                    value={**found[key].value, **more[key].value}, origin=more[key].origin
                )
            found |= more
    found |= _from_environment(environ)
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    found |= {
        key: Setting(value=_checked(key, value, "--"), origin=COMMAND_LINE)
        for key, value in given.items()
    }
    settings = {key: _absolute(key, setting, folder) for key, setting in found.items()}
    return Config(settings, environ, folder)


def _user_file(environ: Mapping[str, str]) -> Path | None:
    base = environ.get("XDG_CONFIG_HOME") or (
        environ["HOME"] + "/.config" if environ.get("HOME") else None
    )
    return Path(base) / "vtjobs" / "config.yaml" if base else None


def _project_file(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        if (parent / "vtjobs.yaml").is_file():
            return parent / "vtjobs.yaml"
    return None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    names = {
        _PREFIX + key.upper().replace(".", "_"): key for key in DEFAULTS if not _is_mapping(key)
    }
    known = {*names, *_NO_SETTINGS}
    for name in sorted(environ.keys() - known):
        # A name that is like none of ours may be somebody else's.
        if name.startswith(_PREFIX) and (near := _like(name, known)):
            raise BadInput(f"{name}: no such variable. Did you mean {near}?")
    return {
        names[name]: Setting(value=_checked(names[name], value, name), origin=name)
        for name, value in environ.items()
        if name in names and value
    }


def _like(name: str, known: Iterable[str]) -> str:
    """Return the variable that a name is a slip of the pen for, or ""."""
    ends = [one.removeprefix(_PREFIX) for one in known]
    near = get_close_matches(name.removeprefix(_PREFIX), ends, n=1, cutoff=0.7)
    return _PREFIX + near[0] if near else ""


def _from_file(path: Path) -> dict[str, Setting]:
    from ..strict_yaml import read

    document = read(path)
    if not isinstance(document.data, dict):
        raise BadInput(
            Problem(
                file=str(path), message="expected a mapping", fix=f"Keys: {', '.join(DEFAULTS)}"
            )
        )
    found: dict[str, Setting] = {}
    for key, value in document.data.items():
        if _is_mapping(key):
            if not isinstance(value, dict):
                raise BadInput(document.problem((key,), "expected a mapping"))
            if key == "notify":
                _check_notices(document, value)
            found[key] = Setting(value=value, origin=str(path))
            continue
        entries = (
            {f"{key}.{inner}": item for inner, item in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
        for name, item in entries.items():
            if name not in DEFAULTS:
                raise BadInput(
                    document.problem((key,), f"unknown setting {name!r}", suggest(name, DEFAULTS))
                )
            try:
                checked = _checked(name, item, "")
            except BadInput as error:
                (found_wrong,) = error.problems
                problem = document.problem((key,), found_wrong.message, found_wrong.fix)
                raise BadInput(problem) from None
            if name in _PATHS and not str(checked).startswith("~"):
                checked = str(path.parent / str(checked))
            found[name] = Setting(value=checked, origin=str(path))
    return found


def _check_notices(document: "Document", value: dict[str, Any]) -> None:
    try:
        notice_settings(value)
    except BadInput as error:
        raise BadInput(document.problem(("notify",), error.problems[0].message)) from None


def _checked(key: str, value: Any, where: str) -> Any:
    name = f"{where}: " if where.startswith("VTJOBS") else ""
    if key in _WHOLE:
        text = str(value)
        if (
            isinstance(value, bool)
            or not (text.isascii() and text.isdigit())
            or not 0 < int(text) <= 10_000_000
        ):
            raise BadInput(f"{name}{key}: expected a whole number of at least 1, got {value!r}")
        return int(text)
    if key in _LISTS:
        # As text, separated by commas; the backend's settings check each.
        return value.split(",") if isinstance(value, str) else value
    if not isinstance(value, str) or not _is_text(value):
        raise BadInput(f"{name}{key}: expected text, got {value!r:.80}")
    if key == "backend":
        require_known(value, f"{name}{key}: ")
    if key == "group":
        require_group(value, name)
    return value


def _is_text(value: str) -> bool:
    """Return whether a value can stand in a path, a URL or a message."""
    is_long = len(value) > MOST_CHARACTERS
    return not is_long and not any(sign in "\0\n" or "\ud800" <= sign <= "\udfff" for sign in value)


def _absolute(key: str, setting: Setting, folder: Path) -> Setting:
    if key not in _PATHS:
        return setting
    path = Path(os.path.expanduser(str(setting.value)))
    return Setting(
        value=str(folder / path if not path.is_absolute() else path), origin=setting.origin
    )

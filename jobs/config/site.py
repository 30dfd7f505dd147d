"""What every backend's settings have in common.

Every text passes an allow-list of ours: submitit's own quoting lets a crafted value run a line of
shell, sbatch reads backslashes inside quotes, and Ray hands an entrypoint to a shell.
"""

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ..errors import BadInput
from ..strict_yaml import Document
from ..validation import validate
from .backends import part
from .config import Config, Setting
from .host import is_scrubbed

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_WORD = re.compile(r"[A-Za-z0-9_./:=,@%+-]{1,512}\Z")
# The first word of a command; srun would take one with a dash for an option of its own.
PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:=,@%+-]{0,511}\Z")
_LINE = re.compile(r"[\x20-\x7e]{1,1000}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


def matching(pattern: re.Pattern[str]) -> AfterValidator:
    """Return the check that a text matches a pattern as a whole; it names the bad character."""

    def check(value: str) -> str:
        if not pattern.match(value):
            bad = next((char for char in value if not _fits(pattern, char)), "")
            raise ValueError(
                f"character {bad!r} not allowed" if bad else f"{value!r} is not allowed"
            )
        return value

    return AfterValidator(check)


def _fits(pattern: re.Pattern[str], char: str) -> bool:
    return any(pattern.match(before + char) for before in ("", "a", "1"))


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _may_be_passed(value: str) -> str:
    if is_scrubbed(value):
        raise ValueError(f"{value} is never passed on to jobs")
    return value


# One text may stand for a list of one.
AsList = BeforeValidator(_as_list)
Name = Annotated[str, matching(_NAME)]
Word = Annotated[str, matching(_WORD)]
Program = Annotated[str, matching(PROGRAM)]
Lines = Annotated[list[Annotated[str, matching(_LINE)]], AsList]
Variable = Annotated[str, matching(_VARIABLE), AfterValidator(_may_be_passed)]


class SiteSettings(BaseModel):
    """Settings of one backend, in a grid's `backend` block or in the configuration."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # Settings that a stored grid does not keep unless the grid itself names them: they may change
    # while it waits.
    not_stored: ClassVar[frozenset[str]] = frozenset()

    environment: Annotated[list[Variable], AsList] = Field(
        default_factory=list,
        description=(
            "variables of the submitting shell that jobs inherit, in addition to the usual ones;"
            " such as WANDB_API_KEY"
        ),
    )

    @classmethod
    def configured(cls, config: Config, name: str) -> Setting:
        """Return what the configuration says of this backend, not checked yet."""
        return config.settings.get(name) or Setting(value={}, origin="default")


def settings_of(name: str) -> type[SiteSettings]:
    """Return the type of a backend's settings.

    Raises:
        BadInput: there is no such backend.
    """
    module = part(name, "settings")
    found: type[SiteSettings] = SiteSettings if module is None else module.SETTINGS
    return found


def configured(config: Config, name: str) -> dict[str, Any]:
    """Return a backend's settings of the configuration, checked.

    Raises:
        BadInput: a value is not allowed.
    """
    settings = settings_of(name)
    given = settings.configured(config, name)
    usual, problems = validate(
        settings, given.value, Document(file=given.origin, data=given.value), (name,)
    )
    if usual is None:
        raise BadInput(problems)
    return usual.model_dump(mode="json")

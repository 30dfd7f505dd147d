"""The backends, and where the parts of each lie.

A backend is one package. Each of its modules is read by another process, so each is imported by
name and on its own:

    backend    `make(config, clock=…)` returns its Backend: the scheduler as commands see it
    settings   `SETTINGS`, the type of what a grid file and vtjobs.yaml may say of it
    on_node    `ON_NODE`, the scheduler as an agent on a node sees it; node.OnNode if absent
    doctor     `examine(config, …)`, its checks of `vtjobs doctor`; none if absent

A package that is installed beside vtjobs registers its own with an entry point of the group
`vtjobs.backends`: the backend's name, and the package.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple

from ..errors import BadInput, suggest

GROUP = "vtjobs.backends"


class Registered(NamedTuple):
    """One backend."""

    package: str
    """The full name of its package."""
    variables: tuple[str, ...] = ()
    """How the environment variables begin that describe a job of this scheduler. No job that is
    submitted from inside one may inherit them.
    """
    kept: tuple[str, ...] = ()
    """Variables that begin like that and are inherited all the same."""


_HOME = "vtjobs.orchestrator.backends"
BACKENDS = {
    "local": Registered(package=f"{_HOME}.local"),
    "slurm": Registered(
        package=f"{_HOME}.slurm",
        variables=(
            "SLURM_",
            "SBATCH_",
            "SALLOC_",
            "SRUN_",
            "SQUEUE_",
            "SACCT_",
            "SINFO_",
            "SCANCEL_",
            "SCONTROL_",
            "PMIX_",
            "PMI_",
        ),
        # Where SLURM's configuration lies: without it, its commands find no cluster.
        kept=("SLURM_CONF",),
    ),
    "ray": Registered(package=f"{_HOME}.ray", variables=("RAY_",)),
}


@cache
def _installed() -> dict[str, Registered]:
    # Imported here: most commands have a backend of our own, and the import is a tenth of `--help`.
    from importlib.metadata import entry_points

    return {point.name: Registered(package=point.value) for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """Return every backend's name: our own, then those that other packages bring."""
    return list(_installed() | BACKENDS)


def elsewhere() -> str:
    """Return the names of our own backends that send runs to other machines, for people."""
    return " or ".join(name for name in BACKENDS if name != "local")


def is_known(name: object) -> bool:
    """Whether there is a backend of this name."""
    # Other packages are looked through only where a name is not ours: it takes a while.
    return name in BACKENDS or name in _installed()


def require_known(name: object, where: str = "") -> None:
    """Refuse the name of a backend that does not exist.

    Raises:
        BadInput: with the names that there are; `where` stands before it.
    """
    if not is_known(name):
        raise BadInput(f"{where}unknown backend {name!r}. {suggest(str(name), names())}")


@cache
def part(name: str, module: str) -> ModuleType | None:
    """Import one module of a backend's package; None if it has none of this name.

    Raises:
        BadInput: there is no such backend, or its package cannot be imported.
    """
    require_known(name)
    package = (BACKENDS.get(name) or _installed()[name]).package
    path = f"{package}.{module}"
    try:
        return import_module(path) if find_spec(path) is not None else None
    except ImportError as error:
        message = f"backend {name} is registered as {package}, which cannot be imported ({error})"
        raise BadInput(f"{message}. Mend or uninstall the package that registers it") from None

"""Which variables of the shell that submits a job gets.

Everything that a program needs to be found, to compute and to reach the network, and nothing else:
keys of other services are not a training's. A grid or a site names what it needs beyond that.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .backends import BACKENDS
from .host import KEPT, clean_environment

# Passed on by their names.
_NAMES = KEPT | frozenset(
    "PATH HOME USER LOGNAME SHELL HOSTNAME PWD LANG LANGUAGE TZ TERM TMPDIR TMP TEMP SCRATCH WORK"
    " PROJECT LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH VIRTUAL_ENV BASH_ENV ENV LOADEDMODULES"
    " _LMFILES_ http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY"
    " FTP_PROXY ALL_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
    " KRB5CCNAME KRB5_CONFIG"
    # A shell that is told to remove one of these ends.
    " SHELLOPTS BASHOPTS UID EUID PPID".split()
)
# Passed on by how they begin: locales, modules, interpreters, containers, and what tunes PyTorch,
# its libraries and its communication.
_PREFIXES = (
    "LC_ XDG_ VTJOBS_ PYTHON CONDA_ MAMBA_ UV_ MODULE LMOD_ __LMOD_ _ModuleTable BASH_FUNC_module"
    " BASH_FUNC_ml BASH_FUNC__module SPACK_ EBROOT EASYBUILD_ APPTAINER SINGULARITY ENROOT_ CUDA_"
    " CUBLAS_ CUDNN_ NVIDIA_ NCCL_ GLOO_ UCX_ FI_ IB_ HIP_ ROCR_ ROCM_ HSA_ MIOPEN_ OMP_ MKL_ KMP_"
    " GOMP_ OPENBLAS_ NUMEXPR_ MALLOC_ TORCH PYTORCH_ TRITON_ TIMM_ HF_ HUGGINGFACE_"
).split()
# Not by how they begin alone: HF_TOKEN, APPTAINER_DOCKER_PASSWORD, VTJOBS_LEDGER.
_SECRET = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH", "LEDGER")
# An address with a user's name and password, as in some proxies.
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def job_environment(named: Collection[str] = ()) -> dict[str, str]:
    """Return what a job inherits of this process's environment.

    Args:
        named: variables that it gets beside those that every job gets; see `named_variables`.
    """
    return {
        name: value
        for name, value in clean_environment().items()
        if name in named or (_is_usual(name) and not _WITH_PASSWORD.search(value))
    }


def named_variables(site: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables that a site's settings name.

    In its list of them, and in its lines of shell, which would find nothing without them.
    """
    lines: Iterable[str] = site.get("setup") or ()
    found = (name for line in lines for name in _REFERENCE.findall(line))
    return frozenset([*(site.get("environment") or ()), *found])


def is_secret(name: str) -> bool:
    """Return whether a variable's name says that its value is secret."""
    return any(word in name.upper() for word in _SECRET)


def _is_usual(name: str) -> bool:
    return name in _NAMES or (name.startswith(tuple(_PREFIXES)) and not is_secret(name))


def rank_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks inherit of an agent: all but what it shows its scheduler to be let in."""
    own = tuple(prefix for backend in BACKENDS.values() for prefix in backend.variables)
    return {
        name: value
        for name, value in environ.items()
        if not (name.startswith(own) and is_secret(name))
    }


def shell_filter(named: Iterable[str], scheduler: Iterable[str]) -> str:
    """Return the line of shell that removes what `job_environment` would.

    For jobs whose environment is that of whoever started the cluster.

    Args:
        named: see `job_environment`.
        scheduler: how the variables begin by which the scheduler tells the job where it is.
    """
    kept = "|".join([*sorted(named), *(f"{prefix}*" for prefix in scheduler), *sorted(_NAMES)])
    secret = "|".join(f"*{word}*" for word in _SECRET)
    usual = "|".join(f"{prefix}*" for prefix in _PREFIXES)
    names = r"env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'"
    choice = f"({kept}) ;; ({secret}) unset $name ;; ({usual}) ;; (*) unset $name ;;"
    return f"for name in $({names}); do case $name in {choice} esac; done"

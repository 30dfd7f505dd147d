"""A lab's own parts of a run, made from the source that came with the run."""

import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..jobs.errors import VtjobsError
from ..jobs.run.error_text import Part, own_file


class OwnPartError(VtjobsError):
    """A lab's own part of a run is not what it must be."""

    exit_code = 2


def load(part: Part, name: str, source: str) -> Callable[..., Any]:
    """Run the source of a part and return its class or function.

    Args:
        part: of the run.
        name: of the class or function.
        source: the text of its file.
    """
    module = ModuleType(f"vtjobs_{part}_{name}")
    # For tracebacks that show the line, and for classes that look themselves up.
    file = own_file(part, name)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)
    found: Callable[..., Any] = getattr(module, name)
    return found

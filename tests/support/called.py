"""Run the command line in the test's own process: for thousands of commands."""

import contextlib
import io
import sys
import traceback
from dataclasses import dataclass

from vtjobs import cli


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What became of a command."""

    code: int
    out: str
    err: str
    traceback: str
    """What the command would have ended with; empty where it is none."""


def called(*words: str) -> Called:
    """Run a command to its end."""
    out, err = io.StringIO(), io.StringIO()
    before, trace, code = sys.argv, "", 0
    sys.argv = ["vtjobs", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        trace = f"{type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})"
    finally:
        sys.argv = before
        sys.unraisablehook = sys.__unraisablehook__
    return Called(code=code, out=out.getvalue(), err=err.getvalue(), traceback=trace)

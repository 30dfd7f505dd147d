"""How a module of vtjobs is started with this Python."""

import sys


def module_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of vtjobs in a process of its own.

    Not from the folder of whoever asks (`-P`): their `queue.py`, or a clone of timm, would be
    imported in place of what is installed.
    """
    return [sys.executable, "-P", "-m", module, *words]

"""The notebook of the docs, executed as Jupyter does.

`python -m tests.support.notebooks FOLDER` executes it where FOLDER/runs has the finished quickstart,
and writes what came out into it.
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "results.ipynb"


def executed(folder: Path) -> Any:
    """Return the notebook after all of its cells were run in a folder."""
    found = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    client = NotebookClient(
        found,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute()


def main() -> None:
    found = executed(Path(sys.argv[1]))
    for cell in found.cells:
        # When it was run, and by which kernel, is nobody's business.
        cell.metadata.pop("execution", None)
    found.metadata.pop("language_info", None)
    nbformat.write(found, NOTEBOOK)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()

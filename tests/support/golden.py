"""What must not change while the code is moved about: ids, stored grids and JSON documents.

    python -m tests.support.golden      write the files of `tests/golden` anew, after an intended
    change

The files hold hashes for what is long, and the document itself for what a reader may want to
compare.
"""

import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "golden"
IDENTITIES = FOLDER / "identities.json"
DOCUMENTS = FOLDER / "documents.json"

# Where a document says when or where it was made, and not what was found.
VOLATILE = frozenset(
    {"as_of", "host", "workspace", "ledger", "journal_age_s", "path", "file", "folder"}
)
COMMANDS = (
    ("status",),
    ("runs", "all"),
    ("show", "681bec1a8dc6cc91"),
    ("why", "681bec1a8dc6cc91"),
    ("failures",),
    ("report", "all"),
    ("report", "all", "--detail"),
    ("compare", "all", "--margin", "0.2"),
    ("compare", "all", "--test", "paired", "--baseline", "each"),
    ("compare", "all", "--anytime", "--min-effect", "1"),
    ("power", "all", "--effect", "1"),
    ("variance", "all"),
    ("catalog",),
    ("papers", "show", "drloc:4"),
    ("papers", "audit"),
)


def sha(text: str | bytes) -> str:
    """Return the SHA-256 of a text, shortened to 16 hexadecimal digits."""
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:16]


def identity(name: str, folder: Path) -> dict[str, Any]:
    """Return what a built-in grid expands to.

    How many runs, the first ids, and hashes of what is stored.
    """
    from vtjobs.jobs.atomic_files import to_json
    from vtjobs.jobs.grid.load import take_in
    from vtjobs.jobs.workspace.paths import Workspace
    from vtjobs.jobs.workspace.stored_grid import freeze, write_grid

    intake = take_in(name)
    frozen = freeze(intake.grid, intake.expansion, at=0.0)
    workspace = Workspace(folder).create()
    write_grid(workspace, frozen, b"")
    stored = workspace.grid(frozen.grid_id)
    settings = json.loads((stored / "grid.json").read_bytes())
    # Submission writes it; before, it was not there until then.
    del settings["declarations"]
    return {
        "grid_id": frozen.grid_id,
        "runs": len(frozen.runs),
        "first": [run[0] for run in frozen.runs[:3]],
        "run_ids": sha("\n".join(run[0] for run in frozen.runs)),
        "runs.json": sha((stored / "runs.json").read_bytes()),
        "grid.json": sha(to_json(settings)),
    }


def identities() -> dict[str, dict[str, Any]]:
    """Return the identity of every built-in grid."""
    from vtjobs.jobs.grid import catalogue

    with tempfile.TemporaryDirectory() as folder:
        return {name: identity(name, Path(folder)) for name in sorted(catalogue.grid_names())}


def plain(value: Any) -> Any:
    """Return a document without what changes from call to call, its numbers to nine digits."""
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [plain(held) for held in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def furnish(folder: Path) -> str:
    """Make a workspace with completed, failed, diverged and cancelled runs.

    Return its ledger's URL.
    """
    from vtjobs.db.ingest import ingest_live
    from vtjobs.jobs.grid.load import take_in
    from vtjobs.jobs.workspace.stored_grid import freeze

    from .ledgers import World

    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    world = World(folder / "runs", url)
    draw = random.Random(0)
    intake = take_in("quickstart", changes={"seeds": 5, "retries": 0})
    for number, run_id in enumerate(world.submit(freeze(intake.grid, intake.expansion, at=1000.0))):
        scores = [70 + draw.gauss(0, 1) / 3 + number % 3 for _ in range(3)]
        if number == 20:
            world.cancel(run_id)
            continue
        world.launch(run_id)
        world.start(run_id, 1)
        for epoch, score in enumerate(scores):
            world.epoch(run_id, 1, epoch, score)
        state, failure = {7: ("failed", "crash"), 13: ("failed", "diverged")}.get(
            number, ("completed", None)
        )
        world.end(
            run_id, 1, state, failure, signature="IndexError: x" if failure == "crash" else ""
        )
    ingest_live(world.ledger, world.workspace)
    world.close()
    return url


def documents(user: Any, url: str) -> Iterator[tuple[str, Any]]:
    """Yield the JSON of each reading command over that workspace."""
    for words in COMMANDS:
        done = user(*words, "--json", VTJOBS_LEDGER=url)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        document = plain(json.loads(done.stdout))
        # Published numbers are long, and stand in the catalogue already.
        yield " ".join(words), sha(json.dumps(document)) if words[0] == "papers" else document


def main() -> int:
    """Write both files anew."""
    from .cli import Cli

    FOLDER.mkdir(exist_ok=True)
    IDENTITIES.write_text(json.dumps(identities(), indent=1) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        found = dict(documents(Cli(Path(folder), Path(folder) / "cache"), furnish(Path(folder))))
    DOCUMENTS.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

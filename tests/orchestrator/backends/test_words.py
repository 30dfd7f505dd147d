"""A scheduler's words are known in its own folder alone."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOMES = ("orchestrator/backends/slurm/", "orchestrator/backends/ray/", "workers/ray_jobs/")
ELSEWHERE = {
    "jobs/config/backends.py": "registers them",
    "commands/groups.py": "knows which command somebody means who types SLURM's",
}
WORDS = re.compile(
    r"\b(slurm\w*|ray|sbatch|scontrol|squeue|sacct|srun|scancel)\b|\b(SLURM|SBATCH|RAY)_", re.I
)


def product() -> list[Path]:
    rooms = ("analysis", "commands", "db", "jobs", "orchestrator", "workers")
    return [ROOT / "cli.py", *(path for room in rooms for path in (ROOT / room).rglob("*.py"))]


def texts(source: str) -> list[str]:
    """Return a module's strings, without those that only document it."""
    tree = ast.parse(source)
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    documents = {id(value) for value in statements if isinstance(value, ast.Constant)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [
        node.value
        for node in constants
        if isinstance(node.value, str) and id(node) not in documents
    ]


def names(path: Path) -> list[str]:
    return [text for text in texts(path.read_text()) if WORDS.search(text)]


def test_no_module_elsewhere_names_a_cluster_scheduler() -> None:
    found = {str(path.relative_to(ROOT)): names(path) for path in product()}
    elsewhere = {place for place, texts in found.items() if texts and not place.startswith(HOMES)}
    assert elsewhere == ELSEWHERE.keys()

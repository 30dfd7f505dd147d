"""What is installed, and what must not be."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .support.house import sources

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("analysis", "commands", "db", "jobs", "orchestrator", "web", "workers")
# Alembic runs this one itself.
SCRIPTS = ("env",)


def test_the_wheel_holds_one_package_and_its_data(tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for name in filter(None, files):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("vtjobs-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"vtjobs"}
    modules = {
        f"vtjobs/{name}" for name in files if name.startswith(ROOMS) and name.endswith(".py")
    }
    assert modules <= set(names)
    assert "vtjobs/jobs/catalogue/grids/quickstart.yaml" in names
    assert "vtjobs/analysis/output/templates/report.html" in names
    assert "vtjobs/analysis/output/templates/vtjobs.css" in names
    assert {"vtjobs/web/templates/base.html", "vtjobs/web/static/uPlot.LICENSE"} <= set(names)
    assert "vtjobs/db/migrations/script.py.mako" in names
    assert not [
        name
        for name in names
        if name.startswith(("vtjobs/tests", "vtjobs/benchmarks", "vtjobs/conftest"))
    ]


@pytest.mark.parametrize("room", ["jobs", "db", "orchestrator", "analysis", "web"])
def test_a_room_of_the_login_node_imports_without_torch(room: str) -> None:
    paths = sorted((ROOT / room).rglob("*.py"))
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in paths
        if path.stem not in SCRIPTS
    ]
    modules = [f"vtjobs.{name}" for name in names]
    heavy = (
        "[m for m in ('torch', 'timm', 'torchvision', 'ray', 'matplotlib', 'sklearn') if m in"
        " sys.modules]"
    )
    code = (
        f"import sys, importlib; [importlib.import_module(m) for m in {modules!r}]; print({heavy})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_agent_imports_without_torch_and_without_a_database() -> None:
    heavy = "[m for m in ('torch', 'timm', 'sqlalchemy', 'pydantic') if m in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, vtjobs.workers.agent.agent; print({heavy})"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_no_module_of_the_product_is_longer_than_a_reader_wants() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(ROOT)}
    assert [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > 400] == []

"""Processes of vtjobs import what is installed, whatever lies in the folder of whoever asks."""

import subprocess
from pathlib import Path

from vtjobs.jobs.config.interpreter import module_command

from ...support.house import sources

ROOT = Path(__file__).parents[3]


def test_a_file_of_the_users_takes_no_librarys_place(tmp_path: Path) -> None:
    for name in ("json", "logging", "torch", "vtjobs"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the user')")
    command = module_command("vtjobs.workers.tools.probe", "--help")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "usage" in done.stdout, done.stderr


def test_no_module_is_started_in_another_way() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources(ROOT)
        if 'sys.executable, "-m"' in " ".join(path.read_text().split())
    ]
    assert bare == []

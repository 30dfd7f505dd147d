"""What every scheduler takes from the configuration."""

from pathlib import Path

import pytest

from vtjobs.jobs.config.config import load_config
from vtjobs.orchestrator.loop.context import make_backend


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_how_often_it_is_asked_and_how_long_it_is_waited_for_are_settings(
    tmp_path: Path, name: str
) -> None:
    usual = make_backend(name, load_config(environ={}, folder=tmp_path))
    assert (usual.poll_s, usual.look_s) == (30, 2)
    (tmp_path / "vtjobs.yaml").write_text("poll_s: 60\nlook_s: 10\n")
    found = make_backend(name, load_config(environ={}, folder=tmp_path))
    assert (found.poll_s, found.look_s) == (60, 10)

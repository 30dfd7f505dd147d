"""What the process that ranks are forked from has imported before the first of them."""

import json
import subprocess
import sys

LOADED = """
import json, sys
from pathlib import Path
from vtjobs.workers.ranks import template
template._warm_up()
before = set(sys.modules)
from vtjobs.jobs.grid import catalogue
from vtjobs.workers.data.datasets import load
load(catalogue.dataset("digits"), "train", data_root=Path(), paths={})
print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
"""


def test_ranks_import_nothing_of_vtjobs_and_nothing_large_for_the_digits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], text=True, capture_output=True, check=True
    )
    warm, later = json.loads(done.stdout)
    for name in ("ranks.rank", "training.loop", "heads.relvit", "models.t2t", "data.augment"):
        assert f"vtjobs.workers.{name}" in warm
    # A rank that imported them after an upgrade would mix two versions.
    assert not [name for name in later if name.startswith("vtjobs.")]
    assert not {"sklearn", "pandas", "scipy"} & {*warm, *later}

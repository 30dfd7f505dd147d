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


COPIED = """
import gc, os
from vtjobs.workers.ranks import template

def own():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

template._warm_up()
if os.fork() == 0:
    before = own()
    assert gc.isenabled()
    gc.collect()
    print(own() - before, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_rank_that_looks_for_garbage_copies_nothing_of_what_was_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COPIED], text=True, capture_output=True, check=True
    )
    # In KiB: 2,000 with nothing to look through, 100,000 with all that was imported.
    assert int(done.stdout) < 20_000

"""What the nodes of a Ray cluster see of a file.

`python -m vtjobs.workers.ray_jobs.check_path --path FILE --text CONTENT`.

Prints a line of JSON with the versions of this interpreter, and another one: per node its id, its
address, whether it reads this content and may write beside it.
"""

import argparse
import json
import logging
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MARK, VERSIONS = "vtjobs-sight ", "vtjobs-versions "
# A node that is too busy to answer says nothing against the workspace.
WITHIN_S = 60.0


def sight(path: str, text: str) -> dict[str, Any]:
    """Look at the file from this node."""
    try:
        ok = Path(path).read_text() == text and os.access(Path(path).parent, os.W_OK)
    except OSError:
        ok = False
    try:
        installed: str | None = version("vtjobs")
    except PackageNotFoundError:
        installed = None
    return {"ok": ok, "python": sys.version.split()[0], "vtjobs": installed}


def main() -> int:
    parser = argparse.ArgumentParser(prog="vtjobs.workers.ray_jobs.check_path")
    parser.add_argument("--path", required=True)
    parser.add_argument("--text", required=True)
    options = parser.parse_args()
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # First: Ray lets nobody in whose versions are not the cluster's.
    mine = {"ray_version": ray.__version__, "python_version": platform.python_version()}
    print(VERSIONS + json.dumps(mine), flush=True)
    # By the interpreter that agents run under, which need not be Ray's own.
    same = {"py_executable": sys.executable}
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR, runtime_env=same)
    look = ray.remote(num_cpus=0, max_retries=0)(sight)
    asked = {}
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[look.options(scheduling_strategy=here).remote(options.path, options.text)] = node
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=WITHIN_S)
    found = []
    for answer in done:
        node = asked[answer]
        try:
            found.append(
                {"node_id": node["NodeID"], "host": node["NodeManagerAddress"], **ray.get(answer)}
            )
        except ray.exceptions.RayError as error:
            # It may have died meanwhile; one that lives is asked again next time.
            print(f"{node['NodeManagerAddress']}: {str(error).splitlines()[0]}", file=sys.stderr)
    print(MARK + json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a node sees, as one JSON line for `vtjobs doctor --probe`.

`python -m vtjobs.workers.tools.probe --workspace DIR --backend NAME`.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import read_json
from ...jobs.config.host import cpu_count, visible_gpus
from ...jobs.config.node import OnNode, on_node
from ..reach import Inquiry


def probe(workspace: Path, backend: str) -> dict[str, Any]:
    """Look at this node.

    Returns:
        `host`, `time` (seconds since 1970), `workspace_id` (None where the folder is not seen
        here), `writable`, `cpus`, `gpus` (as granted), `reach` (why the scheduler does not answer
        here, empty if it does), and of torch: `torch`, `devices` (name and compute capability of
        each GPU), `architectures` of the wheel, `nccl`.
    """
    here = on_node(backend)
    identity = read_json(workspace / "workspace.json") or {}
    return {
        "host": here.host(),
        "time": time.time(),
        "workspace_id": identity.get("id"),
        "writable": os.access(workspace, os.W_OK),
        "cpus": cpu_count(),
        "gpus": visible_gpus(),
        "reach": _reach(here),
        **_torch(),
    }


def _reach(here: OnNode) -> str:
    asked = Inquiry(here)
    while (seen := asked.answer()) is None:
        time.sleep(0.05)
    return seen.reason


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"torch": None, "error": str(error)}
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "architectures": torch.cuda.get_arch_list(),
        "nccl": torch.distributed.is_available() and torch.distributed.is_nccl_available(),
        "devices": [],
    }
    try:
        for index in range(torch.cuda.device_count()):
            capability = ".".join(map(str, torch.cuda.get_device_capability(index)))
            found["devices"].append(
                {"name": torch.cuda.get_device_name(index), "capability": capability}
            )
    except RuntimeError as error:
        found["error"] = str(error).splitlines()[0]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.probe")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--backend", required=True)
    options = parser.parse_args()
    print(json.dumps(probe(options.workspace, options.backend)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a node sees, as one JSON line for `vtjobs doctor --probe`.

`python -m vtjobs.workers.tools.probe --workspace DIR`.
"""

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import read_json
from ...jobs.config.host import cpu_count, visible_gpus


def probe(workspace: Path) -> dict[str, Any]:
    """Look at this node.

    Returns:
        `host`, `time` (seconds since 1970), `workspace_id` (None where the folder is not seen
        here), `writable`, `cpus`, `gpus` (as granted), `sbatch` (whether this node may submit), and
        of torch: `torch`, `devices` (name and compute capability of each GPU), `architectures` of
        the wheel, `nccl`.
    """
    identity = read_json(workspace / "workspace.json") or {}
    return {
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "time": time.time(),
        "workspace_id": identity.get("id"),
        "writable": os.access(workspace, os.W_OK),
        "cpus": cpu_count(),
        "gpus": visible_gpus(),
        "sbatch": any(
            (Path(part) / "sbatch").exists() for part in os.environ.get("PATH", "").split(":")
        ),
        **_torch(),
    }


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
    print(json.dumps(probe(parser.parse_args().workspace)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

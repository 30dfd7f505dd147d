"""An allocation of several nodes on Ray.

A placement group with one agent on each node, from a job on the head.

python -m vtjobs.workers.ray_jobs.nodes --workspace DIR --token TOKEN --nodes N --bundle JSON
[--avoid JSON]

Every agent is a child of an actor on its node and dies with it; the actors die with this process,
and it ends with the exit code of node 0's agent.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import current_umask, open_file, read_json
from ...jobs.config.environment import job_environment, named_variables
from ...jobs.run.states import ExitCode
from ...jobs.workspace.paths import Workspace
from ..process import die_with_parent

logger = logging.getLogger("vtjobs.ray")

# After node 0's agent has ended, the others get this long to end by themselves.
OTHERS_S = 60.0
# Others end by themselves when node 0 orders nothing for five minutes; one that never started will
# not come then.
NO_LEAD_S = 120.0
LOOK_S = 0.5


class NodeAgent:
    """Runs the agent of one node.

    An actor, so that signals can be passed on to it while it is at work.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._signal = 0

    def serve(self, command: list[str], log: str, *, umask: int, named: Collection[str]) -> int:
        """Run the agent to its end; return its exit code, negative for a signal.

        Args:
            command: the agent's.
            log: where its output goes.
            umask: of the files that it makes.
            named: variables that it inherits beside the usual ones and Ray's own.
        """
        import ray

        os.umask(umask)
        # Named as Ray names it: what it is to avoid is told by that.
        own = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        environment = {**job_environment(named), **own, "VTJOBS_NODE": address}
        # Ray tells a job's own process where the head is, and no actor. Without it, an agent could
        # submit nothing where the dashboard's address is a loopback one.
        environment["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        handle = open_file(Path(log), os.O_WRONLY | os.O_APPEND)
        try:
            with self._lock:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=handle,
                    stderr=handle,
                    cwd="/",
                    env=environment,
                    preexec_fn=_as_agent,
                )
                if self._signal:
                    self._child.send_signal(self._signal)
        finally:
            os.close(handle)
        return self._child.wait()

    def signal(self, number: int) -> None:
        with self._lock:
            self._signal = number
            if self._child is not None and self._child.poll() is None:
                self._child.send_signal(number)


def _as_agent() -> None:
    # Ray's workers block signals that an agent listens to.
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    die_with_parent()


def main() -> int:
    """Gather the nodes, start the agents, wait for them."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.ray_jobs.nodes")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument(
        "--bundle", type=json.loads, required=True, help="resources of each node, by Ray's names"
    )
    parser.add_argument(
        "--avoid", type=json.loads, help="a label selector that every node has to meet"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    import ray

    # By the interpreter of this process, which need not be Ray's own.
    same = {"py_executable": sys.executable}
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR, runtime_env=same)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Ray has put its own in their place.
        signal.signal(number, lambda *_: stop.set())
    actors = _gather(ray, options, stop)
    return _serve(ray, options, actors, stop) if actors else int(ExitCode.STOPPED)


def _gather(ray: Any, options: argparse.Namespace, stop: threading.Event) -> list[Any]:
    """Return an actor on each of as many nodes.

    None where it was told to stop before there were so many.
    """
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundles = [options.bundle] * options.nodes
    more = {"bundle_label_selector": [options.avoid] * options.nodes} if options.avoid else {}
    group = placement_group(bundles, strategy="STRICT_SPREAD", **more)
    ready = group.ready()
    while not ray.wait([ready], timeout=LOOK_S)[0]:
        if stop.is_set():
            return []
    logger.info("%s: %d nodes", options.token, options.nodes)
    take = {name: amount for name, amount in options.bundle.items() if name not in ("CPU", "GPU")}
    actor = ray.remote(NodeAgent)
    return [
        actor.options(
            num_cpus=options.bundle["CPU"],
            num_gpus=options.bundle["GPU"],
            resources=take,
            max_concurrency=2,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=node
            ),
        ).remote()
        for node in range(options.nodes)
    ]


def _serve(ray: Any, options: argparse.Namespace, actors: list[Any], stop: threading.Event) -> int:
    workspace = Workspace(options.workspace)
    allocation = read_json(workspace.allocation(options.token)) or {}
    named = sorted(named_variables(allocation.get("site") or {}))
    command = [
        sys.executable,
        "-P",
        "-m",
        "vtjobs.workers.agent",
        "--workspace",
        str(options.workspace),
    ]
    command += ["--token", options.token, "--index", "0", "--node"]
    ends = {
        actor.serve.remote(
            [*command, str(node)],
            str(workspace.agent_log(options.token, 0, node)),
            umask=current_umask(),
            named=named,
        ): node
        for node, actor in enumerate(actors)
    }
    codes: dict[int, int] = {}
    left_s = {True: OTHERS_S, False: NO_LEAD_S}
    while len(codes) < len(actors) and left_s[0 in codes] > 0:
        done, _ = ray.wait([ref for ref, node in ends.items() if node not in codes], timeout=LOOK_S)
        for ref in done:
            codes[ends[ref]] = _code(ray, ref, ends[ref])
        if stop.is_set():
            stop.clear()
            for actor in actors:
                actor.signal.remote(signal.SIGTERM)
        left_s[0 in codes] -= LOOK_S if codes else 0.0
    # What still runs dies with its actor.
    return codes.get(0, int(ExitCode.HARDWARE))


def _code(ray: Any, ref: Any, node: int) -> int:
    try:
        code = int(ray.get(ref))
    except ray.exceptions.RayError as error:
        # The node is gone, or its actor was killed; node 0's agent finds its journal silent, and
        # reports it.
        logger.error("node %d: %s", node, str(error).splitlines()[0])
        return int(ExitCode.HARDWARE)
    logger.info("node %d: exit %d", node, code)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())

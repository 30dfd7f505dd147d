"""Random faults on a private SLURM cluster while a grid is trained, and a count of what went wrong.

    python benchmarks/chaos.py [--profile default] [--minutes 10] [--runs 60] [--seed 1]
                               [--plain-submitit]

Ranks, agents, nodes, daemons and the user's own commands are killed, paused, taken away and brought
back. Jobs are preempted, cancelled, requeued, held and suspended. A node's jobs fail at once, SLURM
is slow, and the user may submit fewer jobs. One seed decides all of it, on a cluster of any shape.
Then everything is mended, the grid settles, and its workspace is read independently and compared
with the ledger. The exit status says whether every count is 0.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos_audit import Findings, audit, read_attempts, top_of
from chaos_faults import Site, descendants, play, processes_with, schedule
from chaos_idle import IdleWatch
from chaos_looks import LookWatch

RUNS = 60
# One run of so many is long.
LONG_EACH = 4
AT_A_TIME = 8
# Epochs of a short run, and of a long one for each minute of faults.
SHORT, PER_MINUTE = 40, 50
# When, as shares of the time of faults, the user cancels a run on purpose, with vtjobs.
CANCELS = (0.3, 0.5, 0.7)
SETTLE_S = 1500.0
GRID = """\
name: chaos
backbones:
  - vit_small_patch16_224: {{patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}}
datasets: [digits]
heads: [supervised]
seeds: {runs}
recipe: quickstart
train: {{epochs: {short}, warmup_epochs: 0, batch_size: 128}}
overrides:
  - when: {{seed: {long_seeds}}}
    set: {{train.epochs: {long}}}
checkpoint_every: 3s
retries: 50
max_running: {at_a_time}
resources: {{gpus_per_node: 1, walltime: 30m, pack: 2}}
backend: {{slurm: {{partition: low, setup: ["{set_up}"]}}}}
"""


class User:
    """Somebody who submits a grid and keeps it going, whatever happens to their terminal."""

    def __init__(self, site: Site, folder: Path, rng: random.Random) -> None:
        self.site, self.folder, self.rng = site, folder, rng
        self.root = folder / "runs"
        self.env = {
            **site.user_env,
            "VTJOBS_DEVICE": "cpu",
            "VTJOBS_POLL_S": "2",
            "OMP_NUM_THREADS": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = (folder / "user.log").open("ab")
        self.kills = 0
        self.submitted = False

    def start(self) -> None:
        """Start one of the commands that keep a grid going."""
        words = ["submit", "grid.yaml", "--wait"]
        if self.submitted and self.rng.random() < 0.7:
            words = ["supervise", "--every", "2"]
        command = [sys.executable, "-m", "vtjobs.cli", *words]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=self.log, stderr=self.log
        )

    def keep(self) -> None:
        """See to it that a command is at work."""
        self.submitted = self.submitted or any(self.root.glob("grids/*/grid.json"))
        if self.process is None or self.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            self.kills += 1

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vtjobs.cli", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300
        )

    def look(self) -> subprocess.CompletedProcess[str] | None:
        """Look at the workspace, once there is one."""
        return self.run("status", "--json") if self.submitted else None

    def agents(self) -> list[int]:
        return processes_with("vtjobs.workers.agent", str(self.root))

    def ranks(self) -> list[int]:
        """Return templates and ranks alike."""
        return [pid for agent in self.agents() for pid in descendants(agent)]

    def runs(self) -> list[dict[str, Any]]:
        done = self.run("runs", "all", "--json")
        try:
            return list(json.loads(done.stdout))
        except ValueError:
            return []


class Wishes:
    """What was cancelled on purpose, and hence need not complete."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.elements: dict[str, list[tuple[str, int]]] = {}
        self.runs: set[str] = set()

    def cancelled(self, element: str, token: str) -> None:
        """Take note of a scancel: whose attempts this element hosts."""
        data = json.loads((self.root / "allocations" / f"{token}.json").read_bytes())
        index = int(element.partition("_")[2] or 0)
        self.elements[element] = [
            (task["run_id"], task["attempt"]) for task in data["tasks"][index]
        ]

    def settled(self) -> dict[str, str]:
        """Return the runs that may, or must, be cancelled.

        An attempt after the cancelled one shows that it failed.
        """
        found = dict.fromkeys(self.runs, "must")
        for tasks in self.elements.values():
            for run_id, attempt in tasks:
                top = top_of(read_attempts(self.root / run_id[:2] / run_id))
                if top is None or top.number <= attempt:
                    found.setdefault(run_id, "may")
        return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="default", help="shape of the cluster")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--plain-submitit", action="store_true", help="what submitit makes of the same faults"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vtjobs-chaos-"))
    site = Site(folder / "c", options.profile)
    site.make()
    try:
        if options.plain_submitit:
            from chaos_submitit import plain

            return plain(site, folder, minutes=options.minutes, seed=options.seed)
        return chaos(site, folder, minutes=options.minutes, seed=options.seed, runs=options.runs)
    finally:
        site.down()
        if options.keep:
            print(folder)
        else:
            subprocess.run(["rm", "-rf", folder], check=False)


def chaos(site: Site, folder: Path, *, minutes: float, seed: int, runs: int) -> int:
    """Do to a grid what the schedule says; print what came of it."""
    rng = random.Random(seed)
    user = User(site, folder, rng)
    wishes = Wishes(user.root)
    long = int(PER_MINUTE * minutes)
    text = GRID.format(
        runs=runs,
        short=SHORT,
        long=long,
        long_seeds=list(range(runs // LONG_EACH)),
        at_a_time=AT_A_TIME,
        set_up=site.set_up,
    )
    (folder / "grid.yaml").write_text(text)
    site.workers, site.leaders, site.kill_user = user.ranks, user.agents, user.kill
    site.cancelled = wishes.cancelled
    faults = schedule(seed, minutes * 60, accounting=site.accounting)
    idle = IdleWatch(site, user.root, AT_A_TIME)
    looks = LookWatch(site, user.look)
    began = time.monotonic()
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    cancel_at = {minutes * 60 * share for share in CANCELS}

    def each() -> None:
        user.keep()
        for due in [at for at in cancel_at if time.monotonic() - began >= at]:
            cancel_at.remove(due)
            cancel_one(user, wishes, rng, say)

    try:
        # A submitter that is killed several times before it has submitted anything, and in the
        # middle of it.
        for _ in range(4):
            user.start()
            time.sleep(rng.uniform(0.3, 4.0))
            user.kill()
        user.keep()
        idle.start()
        looks.start()
        play(site, faults, each, say)
        given_up = settle(user, say)
    finally:
        user.kill()
        for watch in (idle, looks):
            watch.over.set()
        looks.join()
    ends = Counter(run["state"] for run in user.runs())
    findings = audit(user.root, wishes.settled(), epochs_of(user, runs, long))
    findings.idle_slots += idle.found
    findings.failed_looks += looks.found
    return report(
        findings,
        Counter(fault.name for fault in faults),
        ends,
        given_up,
        user,
        time.monotonic() - began,
        {"a slot idle": idle.longest_s, "a look took": looks.longest_s},
    )


def cancel_one(user: User, wishes: Wishes, rng: random.Random, say: Any) -> None:
    """Cancel a run as its user does."""
    found = [
        run["run_id"] for run in user.runs() if run["state"] in ("pending", "queued", "running")
    ]
    if found:
        run_id = rng.choice(sorted(found))
        # Noted first: a command that is cut off may have done it.
        wishes.runs.add(run_id)
        done = user.run("cancel", run_id)
        say(f"          vtjobs cancel {run_id}: {done.returncode} {done.stderr.strip()[:100]}")


def settle(user: User, say: Any) -> int:
    """Wait until nothing moves any more.

    Have what the policy gave up tried again, and return how often.
    """
    given_up, deadline = 0, time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        user.keep()
        found = user.runs()
        counts = Counter(run["state"] for run in found)
        say(f"          {dict(counts)}")
        failed = [run for run in found if run["state"] == "failed"]
        if failed and all(re.search(r"in a row", run["reason"]) for run in failed):
            # Three ends in a row without progress: that the machine is to blame is for the user to
            # say.
            given_up += len(failed)
            user.run("retry", "status=failed", "--yes")
        elif found and all(run["state"] in ("completed", "cancelled", "failed") for run in found):
            return given_up
        time.sleep(5)
    return given_up


def epochs_of(user: User, runs: int, long: int) -> dict[str, int]:
    """Return every run of the grid as it was submitted, with its epochs."""
    found: dict[str, int] = {}
    for path in user.root.glob("grids/*/runs.json"):
        for run_id, _, seed, _ in json.loads(path.read_bytes())["runs"]:
            found[run_id] = long if seed < runs // LONG_EACH else SHORT
    assert len(found) == runs, f"{len(found)} runs were submitted"
    return found


def report(
    findings: Findings,
    faults: Counter[str],
    ends: Counter[str],
    given_up: int,
    user: User,
    seconds: float,
    most_s: dict[str, float],
) -> int:
    """Print the table; return the exit status."""
    attempts = sum(1 for _ in user.root.glob("??/*/attempts/*/journal-0.jsonl"))
    print(f"{sum(faults.values())} faults in {seconds:.0f} s, settling included:")
    for name, count in sorted(faults.items()):
        print(f"    {name:<28} {count:>4}")
    states = ", ".join(f"{count} {state}" for state, count in sorted(ends.items()))
    print(
        f"{sum(ends.values())} runs, {attempts} attempts: {states}; {user.kills} commands killed;"
        f" {given_up} retried by the user; "
        + ", ".join(f"{what} {longest:.0f} s" for what, longest in most_s.items())
        + " at most"
    )
    bad = 0
    for name in findings.__dataclass_fields__:
        lines = getattr(findings, name)
        bad += len(lines)
        print(f"{name.replace('_', ' '):<32} {len(lines):>4}    target 0")
        for line in lines[:5]:
            print(f"        {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.umask(0o077)
    sys.exit(main())

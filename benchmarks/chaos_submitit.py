"""The same faults for 60 tasks that submitit's `map_array` submitted, and what it believes about
them in the end.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos_faults import Site, descendants, play, processes_with, schedule

TASKS, LONG = 60, 15
SHORT_S, PER_MINUTE_S = 4.0, 5.0
SETTLE_S = 900.0
# What may truly be said of a task that did not complete.
ENDS = {"PREEMPTED", "FAILED", "NODE_FAIL"}


def work(folder: str, index: int, seconds: float) -> int:
    """Compute for a while.

    Say on disk, apart from submitit, that it began and that it completed.
    """
    began = time.time()
    truth = (
        Path(folder)
        / "truth"
        / f"{index}-{os.environ.get('SLURM_JOB_ID')}-{os.getpid()}-{began:.0f}"
    )
    truth.touch()
    value, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        value += 1
        time.sleep(0.01)
    truth.with_suffix(".done").touch()
    return index


def plain(site: Site, folder: Path, *, minutes: float, seed: int) -> int:
    """Let the schedule of the other test pass over a job array of submitit's.

    Print what it says and what is so.
    """
    import submitit

    (folder / "truth").mkdir()
    os.environ.update(
        SLURM_CONF=site.env["SLURM_CONF"],
        PATH=site.user_env["PATH"],
        PYTHONPATH=str(Path(__file__).parent),
    )
    executor = submitit.AutoExecutor(folder=folder / "logs", cluster="slurm")
    executor.update_parameters(
        slurm_partition="low",
        timeout_min=30,
        slurm_array_parallelism=6,
        gpus_per_node=1,
        slurm_setup=[site.set_up, f"cd {folder}"],
    )
    seconds = [PER_MINUTE_S * minutes if index < LONG else SHORT_S for index in range(TASKS)]
    jobs = executor.map_array(work, [str(folder)] * TASKS, range(TASKS), seconds)
    cancelled: set[str] = set()
    site.leaders = lambda: processes_with("submitit.core._submit", str(folder))
    site.workers = lambda: [
        *site.leaders(),
        *(each for pid in site.leaders() for each in descendants(pid)),
    ]
    site.cancelled = lambda element, name: cancelled.add(element)
    faults = schedule(seed, minutes * 60, accounting=site.accounting)
    play(site, faults, lambda: None, lambda line: print(line, file=sys.stderr, flush=True))
    wait_for(site, jobs)
    believed = {job.job_id: ask(job) for job in jobs}
    print(f"{len(faults)} faults, {TASKS} tasks, {len(cancelled)} cancelled on purpose")
    return table(folder, jobs, believed, cancelled)


def wait_for(site: Site, jobs: list[Any]) -> None:
    """Wait until the queue is empty of them.

    SLURM itself puts requeued ones off for two minutes.
    """
    deadline = time.monotonic() + SETTLE_S
    array = jobs[0].job_id.partition("_")[0]
    while time.monotonic() < deadline:
        left = [line for line in site.run("squeue", "-h", "-o", "%F").splitlines() if line == array]
        answered = "UP" in site.run("scontrol", "ping")
        if answered and not left:
            break
        time.sleep(5)
    # Its watcher asks again after a while only.
    time.sleep(20)


def ask(job: Any) -> tuple[str, str]:
    """Return the state that submitit believes in, and what becomes of asking for the result."""
    try:
        state = str(job.get_info(mode="force").get("State", "UNKNOWN")) or "UNKNOWN"
    except Exception as error:
        state = type(error).__name__
    if not job.done():
        return state, "not done"
    # What a slow file system may hold back this one does not.
    job._results_timeout_s = 1
    try:
        return state, f"result {job.result()}"
    except Exception as error:
        return state, type(error).__name__


def table(
    folder: Path, jobs: list[Any], believed: dict[str, tuple[str, str]], cancelled: set[str]
) -> int:
    starts, dones = Counter[int](), Counter[int]()
    for path in (folder / "truth").iterdir():
        index = int(path.name.partition("-")[0])
        (dones if path.suffix == ".done" else starts)[index] += 1
    lost = wrong = unfinished = 0
    for index, job in enumerate(jobs):
        state, answer = believed[job.job_id]
        has_result = answer == f"result {index}"
        lost += bool(dones[index]) and not has_result
        unfinished += not dones[index] and job.job_id not in cancelled
        truth = (
            {"COMPLETED"} if dones[index] else {"CANCELLED"} if job.job_id in cancelled else ENDS
        )
        wrong += state.split(" ")[0] not in truth
    print(
        "states that it believes in:",
        json.dumps(Counter(state.split(" ")[0] for state, _ in believed.values())),
    )
    print(
        "what asking for results gave:",
        json.dumps(Counter(answer.split(" ")[0] for _, answer in believed.values())),
    )
    rows = {
        "tasks that nobody cancelled and that never completed": unfinished,
        "completed tasks whose result cannot be had": lost,
        "states that are not so": wrong,
        "tasks that were run to their end more than once": sum(
            count > 1 for count in dones.values()
        ),
        "tasks that were started again from nothing": sum(count > 1 for count in starts.values()),
    }
    for text, count in rows.items():
        print(f"{text:<56} {count:>4}")
    return 0

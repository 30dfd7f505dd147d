"""What one history is like: how many runs, which limits, which faults how often.

Drawn from its seed.
"""

import random
from dataclasses import dataclass, field

# What may befall one array element while it runs, and how much more often than the rarest.
FATES = {
    "never_started": 2.0,  # the job fails before its agent begins
    "node_dead": 2.0,  # everything on the node dies; SLURM notices later
    "node_zombie": 3.0,  # SLURM loses the node, the processes live on
    "admin_down": 1.0,  # the node is set down: killed at once
    "preempted": 3.0,  # TERM, a grace period, KILL
    "preempted_at_once": 2.0,
    "agent_killed": 2.0,
    "no_record": 1.0,  # SLURM says COMPLETED, nobody wrote an end record
    "out_of_memory": 1.0,  # SLURM's word; the agent is dead
    "stalled": 2.0,  # every process of the job stands still for a while
}


@dataclass(slots=True, kw_only=True)
class Profile:
    """The settings of one history."""

    runs: int
    stages: bool = False
    lanes: int = 1
    epochs: int = 4
    tries: int = 3
    walltime_s: int = 3600
    max_running: int | None = None
    canary: bool = False
    nodes: int = 50
    """Elements that run at a time."""
    array_size: int = 1001
    max_jobs: int | None = None
    accounting: bool = True
    min_job_age_s: float = 300.0
    slow_books: float = 0.02
    """How often accounting takes longer than usual."""
    catch_up_s: float = 30.0
    """Until accounting that was away knows what it missed, at most."""
    handover: bool = True
    lose_ledger: int = 0
    """Times in the history."""
    fault: float = 0.2
    """How often an element meets one of the fates."""
    fates: dict[str, float] = field(default_factory=lambda: dict(FATES))
    failure: float = 0.03
    """How often training itself fails."""
    lost_reply: float = 0.05
    refuse: float = 0.0
    kill: float = 0.001
    """How often a process of ours dies at any one of its steps."""
    pause: float = 0.03
    """How often one waits there, so that others go first."""
    outage: float = 0.5
    """Outages of the controller, and as many of accounting, per simulated quarter of an hour."""
    black_holes: int = 0
    """Nodes on which no agent can start. They are always free."""
    admins: float = 0.0
    """Jobs that administrators hold, suspend or requeue, per quarter of an hour."""
    meddling: float = 1.0
    """What users and strangers do, per quarter of an hour, more where there are more than 100 runs.
    """


# Histories of more runs have neither black holes nor administrators.
LONG = 100


def draw(seed: int, runs: int) -> Profile:
    """Draw the settings of a history."""
    chance = random.Random(f"profile {seed}")

    def maybe(probability: float) -> bool:
        return chance.random() < probability

    return Profile(
        runs=runs,
        stages=maybe(0.25),
        lanes=chance.choice([1, 1, 1, 2, 4]),
        epochs=chance.randint(2, 5),
        tries=chance.randint(1, 4),
        walltime_s=chance.choice([180, 300, 600, 3600]),
        max_running=max(2, runs // 2) if maybe(0.15) else None,
        canary=maybe(0.15),
        nodes=max(4, int(runs * chance.choice([0.15, 0.3, 0.6, 1.0]))),
        array_size=chance.choice([10, 51, 1001]),
        max_jobs=max(4, runs // 2) if maybe(0.2) else None,
        accounting=maybe(0.85),
        min_job_age_s=chance.choice([2.0, 30.0, 300.0, 300.0]),
        slow_books=chance.choice([0.0, 0.02, 0.2]),
        handover=maybe(0.8),
        lose_ledger=chance.choice([0, 0, 0, 0, 1, 2]),
        fault=chance.choice([0.05, 0.2, 0.5]),
        failure=chance.choice([0.0, 0.03, 0.1]),
        lost_reply=chance.choice([0.0, 0.1, 0.4]),
        refuse=chance.choice([0.0, 0.0, 0.05]),
        kill=chance.choice([0.0, 0.002, 0.01]),
        pause=chance.choice([0.0, 0.03, 0.15]),
        outage=chance.choice([0.0, 0.5, 1.5]),
        meddling=chance.choice([0.0, 2.0, 10.0]),
        catch_up_s=chance.choice([10.0, 30.0, 300.0]),
        # They make many more jobs, which takes a long history too long.
        black_holes=chance.choice([0, 0, 1, 2]) if runs <= LONG else 0,
        admins=chance.choice([0.0, 0.0, 2.0, 10.0]) if runs <= LONG else 0.0,
    )

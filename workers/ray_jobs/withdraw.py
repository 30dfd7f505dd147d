"""Take jobs that wait out of Ray's queue.

`python -m vtjobs.workers.ray_jobs.withdraw TOKEN…`, as a job on the head.

Ray's own stop reaches a job that waits only once it has started. The actor that waits for its place
is killed instead; Ray then calls the job failed. One that has started meanwhile is left: its agent
sees the cancel on disk.
"""

import logging
import sys

NAMESPACE = "SUPERVISOR_ACTOR_RAY_NAMESPACE"
ACTOR = "_ray_internal_job_actor_{}"


def main() -> int:
    import ray
    from ray.util.state import list_actors

    ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    waiting = {
        actor.name
        for actor in list_actors(filters=[("state", "=", "PENDING_CREATION")], limit=10_000)
    }
    for token in sys.argv[1:]:
        name = ACTOR.format(token)
        if name not in waiting:
            continue
        try:
            ray.kill(ray.get_actor(name))
            print(f"{token}: taken out of the queue", flush=True)
        except ValueError:
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())

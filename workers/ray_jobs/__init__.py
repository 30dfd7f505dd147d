"""Jobs on a Ray cluster's head node, started as `python -m vtjobs.workers.ray_jobs.NAME`."""

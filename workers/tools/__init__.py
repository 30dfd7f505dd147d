"""Commands of their own process, started as `python -m vtjobs.workers.tools.NAME`."""

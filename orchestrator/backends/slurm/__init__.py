"""SLURM as a scheduler.

Submitted through submitit, observed by squeue and sacct, cancelled by scancel.
"""

from .backend import SlurmBackend

__all__ = ["SlurmBackend"]

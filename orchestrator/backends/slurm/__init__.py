"""SLURM as a scheduler.

Submitted through submitit, observed by squeue and sacct, cancelled by scancel.
"""

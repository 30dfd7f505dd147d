"""Name the packages: the folders at the top of the checkout are the sub-packages of `vtjobs`."""

from setuptools import find_packages, setup

ROOMS = ("analysis", "commands", "db", "jobs", "orchestrator", "web", "workers")
FOUND = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])

setup(packages=["vtjobs", *(f"vtjobs.{name}" for name in FOUND)])

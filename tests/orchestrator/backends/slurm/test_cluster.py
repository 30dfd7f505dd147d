"""What scontrol tells of a cluster."""

from vtjobs.orchestrator.backends.slurm import cluster

from ....support.scheduler import Commands

CONFIG = """
Configuration data as of 2026-11-21T13:41:55
AccountingStorageType   = accounting_storage/slurmdbd
MaxArraySize            = 1001
MaxJobCount             = 10000
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = a=1,b=2
"""


def test_the_controllers_settings_are_read_by_name(commands: Commands) -> None:
    commands.prints("scontrol", CONFIG)
    found = cluster.settings(deadline_s=10)
    assert found["MaxArraySize"] == "1001"
    assert found["SlurmctldParameters"] == "a=1,b=2"

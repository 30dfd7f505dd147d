"""vtjobs counts free places as a real controller does, and shares them among grids."""

from collections import Counter
from collections.abc import Iterator

import pytest

from vtjobs.orchestrator.backends.slurm import limits

from ..support.slurm import SlurmCluster
from ..support.slurm_user import LATER, SlurmUser, slurm_grid


@pytest.fixture
def admin(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster with a second QOS, whose limits a test changes; they are taken back afterwards."""
    me = slurm.ask("id", "-un")
    slurm.run("sacctmgr", "-i", "add", "qos", "wide")
    slurm.ask("sacctmgr", "-i", "modify", "user", me, "set", "qos=normal,wide", "defaultqos=normal")
    monkeypatch.setattr(limits, "_known", None)
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    yield slurm
    for words in (
        ("user", me, "set", "MaxSubmitJobs=-1", "qos=normal", "defaultqos=normal"),
        ("account", "lab", "set", "GrpSubmitJobs=-1"),
        ("qos", "wide", "set", "MaxSubmitJobsPU=-1", "MaxSubmitJobsPA=-1", "GrpSubmitJobs=-1"),
    ):
        slurm.ask("sacctmgr", "-i", "modify", *words)


def left(site: dict[str, str]) -> int:
    return min(limits.free(site, "gpu", mine=0, deadline_s=20).values())


def takes(slurm: SlurmCluster, count: int, *options: str) -> bool:
    """Say whether the controller takes so many more; they are cancelled at once."""
    done = slurm.run(
        "sbatch", "--parsable", f"--array=0-{count - 1}", "--begin=now+1hour", *options, "--wrap=true"
    )  # fmt: skip
    if done.returncode == 0:
        slurm.ask("scancel", done.stdout.strip())
    return done.returncode == 0


@pytest.mark.parametrize(
    ("limit", "before"),
    [
        ("user {me} set MaxSubmitJobs=6", "normal"),
        ("user {me} set MaxSubmitJobs=6", "wide"),
        ("account lab set GrpSubmitJobs=6", "wide"),
        ("qos wide set MaxSubmitJobsPU=6", "normal"),
        ("qos wide set MaxSubmitJobsPU=6", "wide"),
        ("qos wide set MaxSubmitJobsPA=6", "wide"),
        ("qos wide set GrpSubmitJobs=6", "wide"),
    ],
)
def test_as_many_are_left_as_the_controller_takes(
    admin: SlurmCluster, limit: str, before: str
) -> None:
    me = admin.ask("id", "-un")
    admin.ask("sacctmgr", "-i", "modify", *limit.format(me=me).split())
    admin.submit("true", f"--qos={before}", "--array=0-1", "--begin=now+1hour")
    for qos in ("normal", "wide"):
        places = left({"qos": qos})
        if places > 1000:
            assert takes(admin, 7, f"--qos={qos}")
        else:
            assert takes(admin, places, f"--qos={qos}")
            assert not takes(admin, places + 1, f"--qos={qos}")


def test_a_grid_of_another_qos_starts_beside_one_at_its_limit(
    user: SlurmUser, admin: SlurmCluster
) -> None:
    admin.ask("sacctmgr", "-i", "modify", "qos", "wide", "set", "MaxSubmitJobsPU=2")
    user.submit(slurm_grid(name="one", seeds="4", site=f"qos: wide, {LATER}"))
    user.submit(slurm_grid(name="two", seeds="[10, 11, 12]", site=f"qos: normal, {LATER}"))
    assert user.states() == {"queued": 5, "pending": 2}


def test_grids_at_one_limit_take_turns(user: SlurmUser, admin: SlurmCluster) -> None:
    me = admin.ask("id", "-un")
    admin.ask("sacctmgr", "-i", "modify", "user", me, "set", "MaxSubmitJobs=4")
    user.submit(slurm_grid(name="one", seeds="20", site=LATER))
    user.submit(slurm_grid(name="two", seeds="[30, 31, 32, 33]", site=LATER))
    assert user.states() == {"queued": 4, "pending": 20}
    (job,) = user.queue()
    admin.ask("scancel", f"{job}_0", f"{job}_1")
    user.wait_states({"queued": 4, "cancelled": 2, "pending": 18})
    live = Counter(run["grid_id"] for run in user.runs() if run["state"] == "queued")
    assert sorted(live.values()) == [2, 2]


def test_a_limit_that_nobody_tells_is_learned_and_not_run_into_again(user: SlurmUser) -> None:
    log = user.folder / "refused.log"
    count = "$(squeue -h -r -o %i | wc -l)"
    size = "$(printf '%s\\n' \"$@\" | sed -n 's/^--array=0-\\([0-9]*\\).*/\\1/p')"
    filtered = f"""
n={size}; n=$(( ${{n:-0}} + 1 ))
if [ $(( {count} + n )) -gt 3 ]; then
  echo no >> {log}
  echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy' >&2
  exit 1
fi
real "$@"
"""
    env = user.sbatch_does(filtered)
    said = user.submit(slurm_grid(seeds="12", site=LATER), **env)
    assert "violates" not in said
    assert user.states() == {"queued": 3, "pending": 9}
    first = len(log.read_text().splitlines())
    for _ in range(3):
        user("supervise", "--once", **env)
    assert len(log.read_text().splitlines()) == first
    user.cluster.ask("scancel", user.cluster.ask("squeue", "-h", "-r", "-o", "%i").split()[0])
    user.wait_states({"queued": 2, "cancelled": 1, "pending": 9})

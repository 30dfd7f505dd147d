"""Who is told of what the cluster does, with nobody at a terminal."""

from vtjobs.jobs.workspace.paths import Workspace
from vtjobs.orchestrator.notices.outbox import Outbox

from ..support.slurm_user import SlurmUser, slurm_grid, wait_for
from ..support.webhook import webhook


def address(user: SlurmUser, url: str) -> str:
    """Write an address where only the user can read it; return what the settings call it."""
    path = user.folder / "address"
    path.write_text(url)
    path.chmod(0o600)
    user.write("vtjobs.yaml", f"notify: {{to: 'file:{path}'}}\n")
    return f"file:{path}"


def test_the_last_job_of_a_grid_tells_that_it_has_ended(user: SlurmUser) -> None:
    with webhook() as hook:
        address(user, hook.url)
        user.submit(slurm_grid(seeds="2"))
        wait_for(lambda: hook.messages)
        (message,) = hook.messages
        assert "has ended: 2 completed" in message["message"]
        # A pass comes to the same notice, which was told.
        user.ok("gc", "all", "--dry-run")
        assert len(list((user.workspace / "notices" / "new").iterdir())) == 1
        assert user.json("notify")[0]["waiting"] == 0


def test_what_a_node_cannot_send_waits_for_who_looks_next(user: SlurmUser) -> None:
    with webhook() as hook:
        hook.status = 500
        name = address(user, hook.url)
        user.submit(slurm_grid(seeds="1"))
        outbox = Outbox(Workspace(user.workspace))
        wait_for(lambda: outbox.tried(name))
        (waiting,) = outbox.open_notices(name)
        assert "has ended: 1 completed" in waiting.text
        assert "1 notice could not be sent" in user.process("status").stderr

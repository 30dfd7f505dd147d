"""Why a job waits: what it takes, beside what the cluster has."""

from collections.abc import Mapping
from typing import Any

from ....jobs.errors import BadInput, SchedulerUnreachable
from ....jobs.workspace.allocation import Allocation
from ..base import Waiting, WaitKind
from .api import Api
from .cluster import check, need_from, nodes
from .observe import UNKNOWN

_FORGOTTEN = (
    "Ray no longer knows this job, as after a restart of its head; "
    "vtjobs retries it once it has sent no heartbeat for 10 min"
)


def explain(word: str, data: Mapping[str, Any], api: Api, *, deadline_s: float) -> Waiting | None:
    """Explain the word of a waiting job; None where it does not wait.

    Args:
        word: Ray's status.
        data: the allocation's file.
        api: its cluster.
        deadline_s: how long an answer is waited for.
    """
    if word == UNKNOWN:
        return Waiting(kind=WaitKind.WAIT, reason=word, sentence=_FORGOTTEN)
    allocation = Allocation.from_dict(dict(data))
    site, several = allocation.site, allocation.shape.nodes > 1
    if word != "PENDING" and not (several and word == "RUNNING"):
        return None
    need = need_from(allocation)
    nodes_each = (
        f"{allocation.shape.nodes} nodes with {need} each" if several else f"{need} on one node"
    )
    try:
        check(need, allocation.shape, nodes(api, deadline_s=deadline_s))
    except BadInput as error:
        problem = error.problems[0]
        if site["autoscale"]:
            sentence = f"it waits for the cluster to add nodes: {problem.message}"
            return Waiting(
                kind=WaitKind.WAIT, reason=word, sentence=sentence, action="See: ray status"
            )
        return Waiting(
            kind=WaitKind.NEVER, reason=word, sentence=problem.message, action=problem.fix or ""
        )
    except SchedulerUnreachable:
        return Waiting(kind=WaitKind.WAIT, reason=word, sentence=f"it waits for {nodes_each}")
    return Waiting(
        kind=WaitKind.WAIT, reason=word, sentence=f"it waits for {nodes_each} to become free"
    )

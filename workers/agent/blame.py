"""Which node's word about the end of an attempt counts.

Times of two hosts cannot be compared, so kinds are: a rank's own error says more than a peer's
broken connection.
"""

import dataclasses
from enum import IntEnum

from ...jobs.run.states import AttemptState, FailureClass
from ...jobs.workspace.events import End
from .other_nodes import OtherNodes
from .outcome import Outcome


class Weight(IntEnum):
    """How much an end says about the cause."""

    ECHO = 0  # its ranks stopped, and it does not know why
    COMMUNICATION = 1
    HANG = 2
    CRASH = 3
    STOP = 4  # it was asked to stop
    PRIMARY = 5


_WEIGHTS = {
    FailureClass.COMMUNICATION: Weight.COMMUNICATION,
    FailureClass.HANG: Weight.HANG,
    FailureClass.CRASH: Weight.CRASH,
    FailureClass.STOPPED: Weight.STOP,
    FailureClass.WALLTIME: Weight.STOP,
    FailureClass.CANCELLED: Weight.STOP,
    FailureClass.SUPERSEDED: Weight.STOP,
}


def weigh(outcome: Outcome, *, was_stopped: bool) -> Weight:
    """Weigh this node's own outcome; `was_stopped` says whether its agent was asked to stop."""
    if outcome.failure is None:
        return Weight.PRIMARY
    weight = _WEIGHTS.get(outcome.failure, Weight.PRIMARY)
    return Weight.ECHO if weight is Weight.STOP and not was_stopped else weight


def blame(own: Outcome, others: OtherNodes, *, was_stopped: bool) -> Outcome:
    """Return the outcome whose cause says most; at equal kinds this node's own."""
    best, weight = own, weigh(own, was_stopped=was_stopped)
    for node, end in sorted(others.ends.items()):
        if end.state == AttemptState.COMPLETED:
            continue
        theirs = _WEIGHTS.get(end.failure, Weight.PRIMARY) if end.failure else Weight.PRIMARY
        if theirs > weight:
            best, weight = _told_by(end, others.host(node)), theirs
    if best is own and Weight.ECHO < weight <= Weight.HANG and len(others.missing) == 1:
        # Everybody else has said what they saw; the silent one is where it happened.
        (node,) = others.missing
        text = (
            f"node {node} {'disappeared' if node in others.starts else 'never started'}:"
            f" {own.signature}"
        )
        return dataclasses.replace(own, signature=text, host=others.host(node))
    return best


def _told_by(end: End, host: str) -> Outcome:
    return Outcome(
        state=end.state,
        failure=end.failure,
        signature=end.signature,
        error=end.error,
        rank=end.rank,
        host=host,
    )

"""Why a job waits: SLURM's reason as a sentence and an action, and whether waiting helps at all."""

import re

from ..base import Waiting, WaitKind
from .reasons import FAMILIES, REASONS, SENTENCES, Meaning

# Only operators may resume a job; one that a preemption has suspended goes on by itself.
_SUSPENDED = (
    "suspended by an administrator or a preemption; it does not train",
    "If it lasts: ask the site's administrators",
)


def explain(word: str, *, job: str = "") -> Waiting | None:
    """Explain the word of a waiting job, such as `PENDING Resources`.

    None where it does not wait.
    """
    state, _, reason = word.partition(" ")
    if state in ("SUSPENDED", "STOPPED"):
        return Waiting(
            kind=WaitKind.ACT, reason=state, sentence=_SUSPENDED[0], action=_SUSPENDED[1]
        )
    if state not in ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"):
        return None
    reason = reason.strip("() ") or "None"
    kind, sentence, action = _meaning(reason)
    return Waiting(kind=kind, reason=reason, sentence=sentence, action=action.replace("{job}", job))


def _meaning(reason: str) -> Meaning:
    name = reason.partition(",")[0]
    if found := REASONS.get(name):
        return found
    for begins, meaning in SENTENCES.items():
        if reason.lower().startswith(begins.lower()):
            return meaning
    for pattern, (kind, sentence, action) in FAMILIES.items():
        if match := re.match(pattern, name):
            who = "its account" if match["who"] == "Assoc" else "its QOS"
            return kind, sentence.format(who=who), action
    return WaitKind.WAIT, f"SLURM says {reason}", "See: scontrol show job {job}"

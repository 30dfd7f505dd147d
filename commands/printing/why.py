"""What `vtjobs why` prints: runs with the same explanation together."""

from collections.abc import Iterable, Iterator

from ...orchestrator.views.remedies import MOST_NAMED
from ...orchestrator.views.why import Explanation

# Stands for a run's own id in what is otherwise the same.
_RUN = "\0"


def lines(documents: Iterable[Explanation]) -> Iterator[str]:
    """Yield why runs are where they are, and what to do, in the order of the first of each kind."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in documents:
        short = one.run_id[:8]
        sentence, action = (text.replace(short, _RUN) for text in (one.sentence, one.action))
        alike = (one.shown_state, sentence, one.verdict, action)
        groups.setdefault(alike, []).append(short)
    for (state, sentence, verdict, action), short_ids in groups.items():
        if len(short_ids) == 1:
            yield f"{short_ids[0]} is {state}: {sentence.replace(_RUN, short_ids[0])}"
        else:
            more = " …" if len(short_ids) > MOST_NAMED else ""
            yield f"{len(short_ids)} runs are {state}: {sentence.replace(_RUN, short_ids[0])}"
            yield f"    {' '.join(short_ids[:MOST_NAMED])}{more}"
        if action:
            yield _remedy(action, "never" if verdict == "never" else "next", short_ids)


def _remedy(action: str, word: str, short_ids: list[str]) -> str:
    """Return what to do, such that it can be pasted."""
    if _RUN in action and len(short_ids) > MOST_NAMED:
        return f"{word}, for each of them: {action.replace(_RUN, short_ids[0])}"
    return f"{word}: {action.replace(_RUN, ' '.join(short_ids))}"

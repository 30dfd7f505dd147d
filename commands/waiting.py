"""Follow runs to their end."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..jobs.errors import RunsFailed
from ..jobs.units import plural
from .options import Selector, Workspace, open_workspace, pasted, say_report, selection

if TYPE_CHECKING:
    from ..db.records import RunRow
    from ..orchestrator.loop.context import Context
    from ..orchestrator.loop.tick import Report


def wait_for(context: "Context", words: list[str], *, told: Collection[str] = ()) -> None:
    """Follow runs to their end.

    Args:
        context: workspace and ledger.
        words: what selects them.
        told: runs whose failure is known and is no failure of the wait.

    Raises:
        RunsFailed: others did not complete.
    """
    from ..orchestrator.loop.wait import wait
    from ..orchestrator.views.eta import etas
    from ..orchestrator.views.shown import HELD, Words
    from .printing.terminal import Progress, say

    is_told = False

    def show(rows: "list[RunRow]", report: "Report") -> None:
        nonlocal is_told
        # The hold markers may have changed since the last look.
        shown = Words(context)
        words = [shown.of(row) for row in rows]
        say_report(context, report)
        if HELD in words and not is_told:
            is_told = True
            say(f"{plural(words.count(HELD), 'run')} on hold. Start: vtjobs release {these}")
        progress.show(rows, words, report, etas(context, chosen).all)

    chosen = selection(words)
    these = pasted(context, words)
    try:
        with Progress() as progress:
            rows = wait(context, chosen, show)
    except KeyboardInterrupt:
        say("stopped waiting; the runs go on. To see them, wait again, or cancel them:")
        for command in ("status", "wait", "cancel"):
            say(f"  vtjobs {command} {these}")
        raise
    counts = Counter(row.state for row in rows)
    say(", ".join(f"{number} {state}" for state, number in sorted(counts.items())))
    ends = [row.state for row in rows if row.state != "completed" and row.run_id not in told]
    bad = len(ends)
    if bad and set(ends) == {"cancelled"}:
        # They have no failure to be shown.
        raise RunsFailed(f"{plural(bad, 'run')} did not complete; to go on: vtjobs retry {these}")
    if bad:
        raise RunsFailed(f"{plural(bad, 'run')} did not complete; see: vtjobs failures {these}")


def wait(selector: Selector = None, workspace: Workspace = None) -> None:
    """Wait until runs have ended.

    Exit code 4 if any did not complete. Ctrl-C stops the waiting, not the runs.
    """
    context = open_workspace(workspace)
    wait_for(context, selector or [])

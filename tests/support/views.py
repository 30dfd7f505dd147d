"""What the reading commands say of the same runs, held against each other."""

import re
from collections import Counter
from collections.abc import Iterable

from vtjobs.commands.printing import show as show_page
from vtjobs.commands.printing.runs import SORTS
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.loop.context import Context
from vtjobs.orchestrator.views import details as view_details
from vtjobs.orchestrator.views import runs as view_runs
from vtjobs.orchestrator.views.eta import Etas
from vtjobs.orchestrator.views.status import status
from vtjobs.orchestrator.views.why import why
from vtjobs.web.addresses import Address, Kind
from vtjobs.web.gather import Source, document_of
from vtjobs.web.render import Frame, page

ALL = Selection()


def shown_words(context: Context, selection: Selection = ALL) -> dict[str, str]:
    """Return run -> the word that `vtjobs runs` shows it by."""
    return {run.run_id: run.shown_state for run in view_runs.runs(context, selection)}


def check_counts(context: Context, runs: list[view_runs.RunView], grids: Iterable[str]) -> None:
    """Check that `status` counts the runs as `runs` lists them, over all and in these grids."""
    found = status(context, ALL)
    assert _met(found.shown) == Counter(run.shown_state for run in runs)
    assert _met(found.runs) == Counter(run.state for run in runs)
    for grid_id in grids:
        (grid,) = [one for one in found.grids if one.grid_id == grid_id]
        members = shown_words(context, Selection(names=(grid_id,)))
        assert _met(grid.shown) == Counter(members.values()), grid_id


def check_run(context: Context, run: view_runs.RunView) -> None:
    """Check that `show` and `why` say of a run what `runs` does, as documents and as text."""
    details, explained = view_details.show(context, run.run_id), why(context, run.run_id)
    said = {(one.state, one.shown_state) for one in (run, details, explained)}
    assert len(said) == 1, f"run {run.run_id}: runs, show and why say {said}"
    (line,) = [line for line in show_page.lines(details) if line.startswith("state ")]
    assert line.split()[1].rstrip(":") == run.shown_state == SORTS["state"](run), line
    assert _word_on_page(context, run) == run.shown_state


def _word_on_page(context: Context, run: view_runs.RunView) -> str:
    """Return the word on a run's page in a browser."""
    address = Address(Kind.RUN, run.run_id)
    document = document_of(Source(context=context, selection=ALL, left=Etas(grids={})), address)
    assert document is not None
    frame = Frame(workspace="", as_of="", where="", suffix=".html")
    (word,) = re.findall(
        r'<dt>state</dt><dd><span class="state state-(.*?)">', page(document, address, frame)
    )
    return str(word)


def _met(counts: dict[str, int]) -> dict[str, int]:
    return {word: count for word, count in counts.items() if count}

"""A grid's study of its streams of randomness.

Its design, what came of it, and whether the streams are wired in.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...db import lookups, queries, records
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.errors import DamagedJournal
from ...jobs.grid.design import REPEAT, Design, rows, seed_text
from ...jobs.run.selector import Selection
from ...jobs.run.spec import STREAMS, seeds_of
from ...jobs.run.states import RunState
from ...jobs.workspace.events import Fingerprints, typed
from ...jobs.workspace.journal import read_all
from ...jobs.workspace.paths import RunFolder, Workspace
from ..stats.balance import whole_part
from ..stats.components import components


def studies(
    ledger: Ledger, workspace: Workspace, selection: Selection, *, metric: str, set_name: str
) -> dict[str, list[dict[str, Any]]]:
    """Return cell -> its studies, for the selected cells that are part of any.

    Args:
        ledger: where the results are.
        workspace: where the runs have written what their streams decided.
        selection: of runs; a study is taken whole as soon as one of its runs is selected.
        metric: of the scores.
        set_name: that they were made on.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    with reading(ledger.engine) as connection:
        chosen = [
            row for row in queries.list_runs(connection, selection) if row.streams is not None
        ]
        settings = queries.grid_settings(
            connection, lookups.all_grids_of(connection, [row.run_id for row in chosen])
        )
        for grid_id, one in sorted(settings.items()):
            if not one.get("variance"):
                continue
            members = queries.list_runs(connection, Selection(names=(grid_id,)))
            scores = {
                row.run_id: float(row.last)
                for row in queries.results_of(connection, [row.run_id for row in members])
                if row.metric == metric and row.set_name == set_name
            }
            mine_of: dict[str, list[records.RunRow]] = {}
            for row in members:
                mine_of.setdefault(row.cell_id, []).append(row)
            for cell_id in dict.fromkeys(row.cell_id for row in chosen if row.cell_id in mine_of):
                mine = mine_of[cell_id]
                document = study(one["variance"], mine, scores)
                prints = [(_streams(row), fingerprints(workspace.run(row.run_id))) for row in mine]
                document["wiring"] = wiring(prints)
                found.setdefault(cell_id, []).append(
                    {"grid_id": grid_id, "metric": metric, **document}
                )
    return found


def study(
    variance: dict[str, Any], members: Sequence[records.RunRow], scores: Mapping[str, float]
) -> dict[str, Any]:
    """Return the components of one cell's study, or why there are none.

    Args:
        variance: as the grid has it.
        members: the runs of the cell.
        scores: run -> metric.
    """
    design, vary = Design(variance["design"]), list(variance["vary"])
    planned = rows(
        design,
        variance["vary"],
        hold=variance["hold"],
        ride=variance["ride"],
        repeat=variance["repeat"],
    )
    done = {
        _key(_streams(row)): scores[row.run_id]
        for row in members
        if row.state == RunState.COMPLETED and row.run_id in scores
    }
    missing = [streams for streams in planned if _key(streams) not in done]
    document: dict[str, Any] = {
        "design": str(design),
        "vary": {stream: len(values) for stream, values in variance["vary"].items()},
        "ride": list(variance["ride"]),
        "n": len(planned) - len(missing),
        "used": len(planned) - len(missing),
        "left_out": {},
        "planned": len(planned),
        "missing": [seed_text(0, streams) for streams in missing],
        "why_not": "",
        "parts": None,
    }
    kept: Sequence[Mapping[str, int]] = planned
    if missing:
        found = _without(members, missing, design, vary, planned)
        if found is None:
            # Means over what is left would mix the streams.
            return document | {"why_not": _why_not(members, missing, len(planned))}
        kept, document["left_out"] = found
        document["used"] = len(kept)
    document["parts"] = components(
        design, vary, [(streams, done[_key(streams)]) for streams in kept]
    )
    return document


def _without(
    members: Sequence[records.RunRow],
    missing: Sequence[Mapping[str, int]],
    design: Design,
    vary: Sequence[str],
    planned: Sequence[Mapping[str, int]],
) -> tuple[list[Mapping[str, int]], dict[str, list[int]]] | None:
    """Return the part of a study with holes that has none.

    A diverged run is an outcome, and not left out.
    """
    keys = {_key(streams) for streams in missing}
    if any(row.state == RunState.DIVERGED and _key(_streams(row)) in keys for row in members):
        return None
    return whole_part(design, vary, planned, [_key(streams) not in keys for streams in planned])


def _why_not(
    members: Sequence[records.RunRow], missing: Sequence[Mapping[str, int]], planned: int
) -> str:
    keys = {_key(streams) for streams in missing}
    states = Counter(row.state for row in members if _key(_streams(row)) in keys)
    if diverged := states[RunState.DIVERGED]:
        return (
            f"{diverged} of {planned} runs diverged without a score: the variance cannot be split"
        )
    if scoreless := states[RunState.COMPLETED]:
        return f"{scoreless} of {planned} runs completed without this metric"
    return f"{len(missing)} of {planned} runs are missing; the variance is split once they complete"


def _streams(row: records.RunRow) -> dict[str, int]:
    return row.streams if row.streams is not None else seeds_of(row.seed)


def _key(streams: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(streams.get(name, 0) for name in (*STREAMS, REPEAT))


def fingerprints(folder: RunFolder) -> dict[str, str | None]:
    """Return what a run's streams decided, stream -> hash, or nothing where it has not said so."""
    for attempt in sorted(folder.attempts()):
        try:
            lines = read_all(folder.journal(attempt, 0))
        except (OSError, DamagedJournal):
            continue
        for event in map(typed, lines):
            if isinstance(event, Fingerprints):
                return event.streams
    return {}


def wiring(
    runs: Sequence[tuple[Mapping[str, int], Mapping[str, str | None]]],
) -> list[dict[str, Any]]:
    """Compare the values of each stream with what it decided.

    Args:
        runs: stream -> value, and stream -> hash, of each run.

    Returns:
        For each stream the number of `values` and of `fingerprints` (0: it decides nothing in these
        runs), and whether
        it is `wired`: one fingerprint for each value, and none twice. Runs without fingerprints are
            left out.
    """
    known = [(streams, prints) for streams, prints in runs if prints]
    found = []
    for stream in STREAMS:
        pairs = {(streams[stream], prints.get(stream)) for streams, prints in known}
        values, hashes = {value for value, _ in pairs}, {one for _, one in pairs if one is not None}
        wired = len(pairs) == len(values) == len(hashes) if hashes else None
        found.append(
            {"stream": stream, "values": len(values), "fingerprints": len(hashes), "wired": wired}
        )
    return found

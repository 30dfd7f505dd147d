"""From a selection to the runs that it means; what is said where it means none."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, and_, not_, or_, select

from ..jobs.errors import BadInput, NothingMatched, did_you_mean, suggest
from ..jobs.names import RUN_ID_PREFIX
from ..jobs.run.selector import FIELDS, Condition, Selection, axis_text
from . import cell_names, tags
from . import models as m

_IDS = {"cell": m.cells.c.cell_id, "run": m.runs.c.run_id}
_COLUMNS = {**_IDS, "state": m.runs.c.state}
# Of longer lists of values the beginning is printed.
MOST = 12


def resolve_grids(connection: Connection, name: str) -> list[str]:
    """Return the ids of the grids that a name or an id means.

    The newest submission of that name.
    """
    by_id = (
        connection.execute(select(m.grids.c.grid_id).where(m.grids.c.grid_id == name))
        .scalars()
        .all()
    )
    if by_id:
        return list(by_id)
    newest = (
        select(m.grids.c.grid_id)
        .where(m.grids.c.name == name)
        .order_by(m.grids.c.submitted_at.desc())
        .limit(1)
    )
    return list(connection.execute(newest).scalars())


def named_grids(connection: Connection, selection: Selection) -> list[str]:
    """Return the grids that a selection names, none where it also names single runs."""
    conditions = [one for one in selection.conditions if one.field == "grid" and not one.negated]
    names = selection.names or [value for one in conditions for value in one.values]
    found = [resolve_grids(connection, name) for name in names]
    return [grid_id for grids in found for grid_id in grids] if all(found) else []


def where(connection: Connection, selection: Selection) -> Any:
    """Turn a selection into a condition on runs joined with cells.

    Raises:
        NothingMatched: a word is neither a grid nor the beginning of a run's id.
        BadInput: a condition's field is none, nor an axis of a grid.
    """
    parts = [_condition(connection, condition) for condition in selection.conditions]
    if selection.names:
        parts.append(or_(*(_named(connection, name) for name in selection.names)))
    return and_(*parts) if parts else and_(True)


def select_ids(connection: Connection, selection: Selection) -> list[str]:
    """Return the ids of the selected runs.

    Raises:
        NothingMatched: there are none.
    """
    query = select(m.runs.c.run_id).join(m.cells, m.cells.c.cell_id == m.runs.c.cell_id)
    found = list(
        connection.execute(
            query.where(where(connection, selection)).order_by(m.runs.c.run_id)
        ).scalars()
    )
    if not found:
        raise nothing(connection, selection)
    return found


def run_ids(connection: Connection, begun: str, *, most: int) -> list[str]:
    """Return at most so many runs whose ids begin so."""
    query = select(m.runs.c.run_id).where(m.runs.c.run_id.startswith(begun, autoescape=True))
    return list(connection.execute(query.order_by(m.runs.c.run_id).limit(most)).scalars())


def nothing(connection: Connection, selection: Selection) -> NothingMatched:
    """Return the error for a selection of no runs: what is not there, or that nothing fits."""
    unknown = absent(connection, selection)
    words = [*selection.names, *(condition.word for condition in selection.conditions)]
    text = f"no run matches {' '.join(words)}".rstrip() if words else "there are no runs yet"
    return NothingMatched("\n".join(unknown) or text)


def absent(connection: Connection, selection: Selection) -> list[str]:
    """Return a sentence for each value of the conditions that no run has at all."""
    return [text for condition in selection.conditions for text in _absent(connection, condition)]


def fields(connection: Connection) -> list[str]:
    """Return what conditions can be on: the fields of every run, and the axes of the grids."""
    return [*FIELDS, *(axis for axis in _axes(connection) if axis not in FIELDS)]


def values(connection: Connection, field: str) -> list[str]:
    """Return the values of a condition's field that there are, as they are written in one."""
    return [axis_text(value) for value in _values(connection, field)]


def _values(connection: Connection, field: str) -> list[Any]:
    if field == "grid":
        query = select(m.grids.c.grid_id, m.grids.c.name).order_by(m.grids.c.submitted_at.desc())
        rows = list(connection.execute(query))
        return list(dict.fromkeys([row.name for row in rows] + [row.grid_id for row in rows]))
    if field == "user":
        users = set(filter(None, submitters(connection).values()))
        return sorted(users | {user.partition("@")[0] for user in users})
    if field == "seed":
        seeds = select(m.runs.c.seed).where(m.runs.c.streams == "").distinct()
        return sorted(connection.execute(seeds).scalars())
    if field == "tag":
        return tags.names(connection)
    if field in _COLUMNS:
        found = connection.execute(select(_COLUMNS[field]).distinct()).scalars()
        return sorted(filter(None, found))
    if field in cell_names.NAMES:
        return sorted(filter(None, cell_names.values(connection, field)))
    return _axes(connection).get(field, [])


# Names --------------------------------------------------------------------------------------------


def _named(connection: Connection, name: str) -> Any:
    grids = resolve_grids(connection, name)
    if grids:
        return _in_grids(grids)
    if RUN_ID_PREFIX.match(name):
        matches = _begins(m.runs.c.run_id, name)
        if connection.execute(select(m.runs.c.run_id).where(matches).limit(1)).first() is not None:
            return matches
    raise NothingMatched(_sentences(f"no run and no grid {name!r}", *_instead(connection, name)))


def _begins(column: Column[str], value: str) -> ColumnElement[bool]:
    """Return whether an id is this one, or begins so where enough of it is given."""
    is_beginning = RUN_ID_PREFIX.match(value) is not None
    return column.startswith(value, autoescape=True) if is_beginning else column == value


def _in_grids(grids: Sequence[str]) -> Any:
    return m.runs.c.run_id.in_(select(m.grid_runs.c.run_id).where(m.grid_runs.c.grid_id.in_(grids)))


def _instead(connection: Connection, name: str) -> tuple[str, str]:
    """Return the nearest grid or run as a question, and the grids that there are."""
    grids = values(connection, "grid")
    near = did_you_mean(name, grids)
    if not near and (run_id := _run_like(connection, name)):
        near = f"Did you mean {run_id[: max(8, len(name))]!r}?"
    query = select(m.grids.c.name).order_by(m.grids.c.submitted_at.desc())
    names = list(dict.fromkeys(connection.execute(query).scalars()))
    return near, f"Grids: {_listed(names)}" if names else "No grid was submitted yet"


def _run_like(connection: Connection, name: str) -> str | None:
    """Return a run whose id begins as most of the word does."""
    if not RUN_ID_PREFIX.match(name):
        return None
    for length in range(len(name) - 1, 3, -1):
        begins = m.runs.c.run_id.like(f"{name[:length]}%")
        found = connection.execute(select(m.runs.c.run_id).where(begins).limit(1)).scalar()
        if found is not None:
            return str(found)
    return None


# Conditions ---------------------------------------------------------------------------------------


def _condition(connection: Connection, condition: Condition) -> Any:
    given = list(condition.values)
    found: Any
    match condition.field:
        case "grid":
            found = _in_grids([grid for value in given for grid in _known_grid(connection, value)])
        case "seed":
            # A place in a study's design is no seed.
            seeds = [int(value) for value in given]
            found = and_(m.runs.c.seed.in_(seeds), m.runs.c.streams == "")
        case "user":
            found = _in_grids(_grids_of_users(connection, set(given)))
        case "tag":
            found = tags.have_one_of(given)
        case "state":
            found = m.runs.c.state.in_(given)
        case "cell" | "run" as field:
            found = or_(*(_begins(_IDS[field], value) for value in given))
        case field if field in cell_names.NAMES:
            found = cell_names.have_one_of(field, given)
        case _:
            found = _of_axis(connection, condition)
    return not_(found) if condition.negated else found


def _known_grid(connection: Connection, name: str) -> list[str]:
    grids = resolve_grids(connection, name)
    if not grids:
        # Also where it is to be left out: what was meant to be spared would not be.
        near, there = _instead(connection, name)
        raise NothingMatched(_sentences(f"no grid {name!r}", near, there))
    return grids


def _grids_of_users(connection: Connection, users: set[str]) -> list[str]:
    """Return the grids that these submitted, each named with or without the host."""
    by = submitters(connection)
    return [grid for grid, user in by.items() if {user, user.partition("@")[0]} & users]


def submitters(connection: Connection) -> dict[str, str]:
    """Return grid -> who submitted it last, as user@host; empty where it was not recorded."""
    rows = connection.execute(select(m.grids.c.grid_id, m.grids.c.settings))
    return {row.grid_id: json.loads(row.settings).get("submitted_by", "") for row in rows}


def _of_axis(connection: Connection, condition: Condition) -> Any:
    """Return the condition on an axis.

    Cells have theirs as JSON, which the two databases read in two ways: the combinations are few,
    and compared here.
    """
    axis, is_one = condition.field, _matcher(condition.values)
    found, known = [], False
    for text in cell_names.values(connection, "axes"):
        axes = json.loads(text)
        known = known or axis in axes
        if axis in axes and is_one(axes[axis]):
            found.append(text)
    if not known:
        fix = suggest(axis, fields(connection))
        raise BadInput(f"{condition.word}: unknown field {axis!r}. {fix}")
    return cell_names.have_one_of("axes", found)


def _matcher(given: Sequence[str]) -> Callable[[Any], bool]:
    """Return the function that says whether a value is one of these; 1e-3 is 0.001."""
    texts, numbers = set(given), {_number(text) for text in given} - {None}

    def is_one(value: Any) -> bool:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) in numbers
        return axis_text(value) in texts

    return is_one


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _axes(connection: Connection) -> dict[str, list[Any]]:
    """Return axis -> its values in all grids."""
    found: dict[str, dict[str, Any]] = {}
    for text in cell_names.values(connection, "axes"):
        for axis, value in json.loads(text).items():
            found.setdefault(axis, {})[axis_text(value)] = value
    return {axis: sorted(found[axis].values(), key=_by_size) for axis in sorted(found)}


def _by_size(value: Any) -> tuple[bool, float, str]:
    """Order numbers by size, then everything else by its text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, axis_text(value)


def _absent(connection: Connection, condition: Condition) -> list[str]:
    field = condition.field
    if condition.negated or field in ("state", "run", "grid"):
        return []
    there = _values(connection, field)
    texts = [axis_text(value) for value in there]
    found = []
    for text in condition.values:
        is_one = _matcher((text,))
        if any(is_one(value) or (field in _IDS and value.startswith(text)) for value in there):
            continue
        near = did_you_mean(text, texts)
        known = f"Known: {_listed(texts)}" if texts else ""
        found.append(_sentences(f"{field}={text}: no run has this {field}", near, known))
    return found


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _sentences(*parts: str) -> str:
    """Join sentences, of which questions have their mark already."""
    text = ""
    for part in filter(None, parts):
        text += ("" if not text else " " if text.endswith("?") else ". ") + part
    return text

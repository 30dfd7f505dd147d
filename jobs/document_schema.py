"""JSON Schemas of typed documents, with the texts below their fields as descriptions."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from .run.settings import RecipeSettings

# What a key means in every document that has it, unless the field says something else.
COMMON = {
    "schema_version": "Raised when a key is removed or changes its meaning.",
    "run_id": "The run.",
    "grid_id": "The grid.",
    "cell_id": "The cell: all seeds of one combination of settings.",
    "backbone": "Its short name.",
    "dataset": "Its name.",
    "head": "Its label.",
    "recipe": "The name of the recipe.",
    "stage": "The training stage; empty in a grid without stages.",
    "axes": "Further settings by which cells of the grid differ.",
    "metric": "Such as top1, top5 or loss; ema_… is that of averaged weights.",
    "set": "The evaluation set.",
    "set_name": "The evaluation set.",
    "select": "Which epoch was scored: last, best_val or ema_last.",
    "attempt": "Its number, from 1.",
    "state": "Where it stands.",
    "states": "State -> runs in it.",
    "host": "The scheduler's name of the node.",
    "epoch": "Epochs finished.",
    "step": "Optimizer steps since the beginning of the run.",
    "steps": "Of the whole run.",
    "at": "ISO 8601, UTC.",
    "submitted_at": "ISO 8601, UTC.",
    "started_at": "ISO 8601, UTC.",
    "ended_at": "ISO 8601, UTC.",
    "heartbeat_at": "Last sign of life; ISO 8601, UTC.",
    "alpha": "Family-wise significance level.",
    "margin": "Equivalence margin ±, in the metric's unit.",
    "min_effect": "Smallest difference to detect, in the metric's unit.",
    "n": "Seeds with a value.",
    "mean": "Over seeds.",
    "std": "Sample standard deviation over seeds (ddof 1).",
    "p": "Two-sided p value.",
    "t": "Test statistic.",
    "df": "Degrees of freedom.",
    "run_hours": "Hours of all runs together.",
    "gpu_hours": "`run_hours` times the GPUs of a run.",
    "name": "Its name.",
    "backend": "Its name.",
    "last_epoch": "The epoch of `last`.",
    "best_epoch": "The epoch of `best`.",
}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document, or of `list[…]` of one."""
    found: dict[str, Any] = msgspec.json.schema(kind)
    for record in _records(kind, set()):
        definition = found["$defs"][record.__name__]
        definition["description"] = inspect.getdoc(record)
        texts = COMMON | field_texts(record)
        for name, key in _keys(record).items():
            if name in texts:
                definition["properties"][key]["description"] = texts[name]
        if tag := _tag_field(record):
            definition["properties"][tag]["description"] = "Tells the kinds of this document apart."
    return found


def field_texts(record: type) -> dict[str, str]:
    """Return field -> the text below it, for a record and what it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if _is_record(base) and base.__module__.startswith("vtjobs."):
            found |= _texts_in(textwrap.dedent(inspect.getsource(base)))
    if record is RecipeSettings:
        # Most of its texts stand where a user's recipe is checked.
        from .grid.recipe import Recipe

        fields = Recipe.model_fields.items()
        found |= {name: field.description for name, field in fields if field.description}
    return found


def _texts_in(source: str) -> dict[str, str]:
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for field, text in zip(made.body, made.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = inspect.cleandoc(str(text.value.value)).replace("\n", " ")
    return found


def _tag_field(record: type[msgspec.Struct]) -> str | None:
    return record.__struct_config__.tag_field


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _keys(record: type[msgspec.Struct]) -> dict[str, str]:
    """Return field -> its key in JSON."""
    return {field.name: field.encode_name for field in msgspec.structs.fields(record)}


def _records(kind: Any, seen: set[Any]) -> Iterator[type[msgspec.Struct]]:
    """Yield every record that a type has in it."""
    if _is_record(kind):
        if kind not in seen:
            seen.add(kind)
            yield kind
            for part in get_type_hints(kind).values():
                yield from _records(part, seen)
        return
    for part in get_args(kind):
        yield from _records(part, seen)

"""The reference of JSON documents, made from their types.

python -m tests.support.json_reference      write docs/json.md anew
"""

from pathlib import Path
from typing import Any

from vtjobs.commands.json_documents import DOCUMENTS, type_of
from vtjobs.jobs.document_schema import schema_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
HEAD = """\
# JSON documents

What commands print with `--json`. Conventions are in [Commands](commands.md#json). `vtjobs schema COMMAND` prints the JSON Schema
of a document, for validators and code generators. This page is made from the same types.
"""


def page() -> str:
    """Return the page: for each document its keys, their types and their meaning."""
    parts = [HEAD]
    where: dict[str, str] = {}
    for name, (commands, schema) in _documents().items():
        parts.append(_section(name, commands, schema, where))
    return "\n".join(parts)


def _documents() -> dict[str, tuple[list[str], dict[str, Any]]]:
    """Return document -> the commands that print it, and its schema."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for command in DOCUMENTS:
        schema = schema_of(type_of(command))
        found.setdefault(_root(schema), ([], schema))[0].append(command)
    return found


def _root(schema: dict[str, Any]) -> str:
    reference: str = schema.get("$ref") or schema["items"]["$ref"]
    return reference.rpartition("/")[2]


def _section(root: str, commands: list[str], schema: dict[str, Any], where: dict[str, str]) -> str:
    called = ", ".join(f"`{command}`" for command in commands)
    many = " A list of them." if "items" in schema else ""
    lines = [f"## {called}", ""]
    records = [root, *(name for name in schema["$defs"] if name != root)]
    for name in records:
        record = schema["$defs"][name]
        if "properties" not in record or name in where:
            continue
        where[name] = called
        more = many if name == root else ""
        lines += [f"### {name}", "", record["description"] + more, "", *_table(record)]
    return "\n".join(lines)


def _table(record: dict[str, Any]) -> list[str]:
    rows = ["| key | type | meaning |", "|---|---|---|"]
    for key, value in record["properties"].items():
        optional = "" if key in record.get("required", ()) else ", may be absent"
        rows.append(f"| `{key}` | {_type(value)}{optional} | {value['description']} |")
    return [*rows, ""]


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"text ({name})" if name in _WORDS else f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_type(one) for one in value["anyOf"])
    match value.get("type"):
        case "array":
            return f"list of {_type(value['items'])}" if value.get("items") else "list"
        case "object":
            of = value.get("additionalProperties")
            return f"{{key: {_type(of)}}}" if isinstance(of, dict) and of else "object"
        case None if "enum" in value:
            return " or ".join(f"`{word}`" for word in value["enum"])
        case "string":
            return "text"
        case "integer":
            return "integer"
        case None:
            return "any"
        case other:
            return str(other)


# Types that are one of several words.
_WORDS = frozenset(("Test", "Family", "Select", "OnDiverged", "Verdict"))


if __name__ == "__main__":
    PAGE.write_text(page())

"""The documents: links lead somewhere, commands exist, examples are valid."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from vtjobs.commands.json_documents import DOCUMENTS, type_of
from vtjobs.jobs.document_schema import schema_of
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.heads import HEADS
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.run.spec import BASELINE

from .support import golden, json_reference
from .support.house import ROOMS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for found, body in BLOCK.findall(page.read_text())
        if found == kind
    ]


def shown_commands() -> list[str]:
    found = set()
    for page in PAGES:
        for line in page.read_text().splitlines():
            found |= set(re.findall(r"(?:^\$ |^|`)(vtjobs [a-z][^`#]*)", line))
    return sorted(command.strip() for command in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@cache
def words_of_the_sources() -> frozenset[str]:
    """Return every name in the code and in the catalogue."""
    rooms = [ROOT / name for name in (*ROOMS, "tests")]
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "deploy" / "constraints"]
    files += [file for room in rooms for kind in ("py", "yaml") for file in room.rglob(f"*.{kind}")]
    return frozenset(word for file in files for word in re.findall(r"\w+", file.read_text()))


def test_what_the_guide_for_developers_names_is_there() -> None:
    # A recipe that names what has since moved sends whoever follows it into the wrong file.
    text = BLOCK.sub("", (ROOT / "docs" / "developing.md").read_text())
    named = set(re.findall(r"`([^`\n]+)`", text))
    paths = {one.rstrip("/") for one in named if re.fullmatch(r"[\w-]+(/[\w.-]+)+/?", one)}
    missing = {one for one in paths if "NAME" not in one and not (ROOT / one).exists()}
    names = {
        one.partition("(")[0]
        for one in named
        if re.fullmatch(r"_?[A-Za-z]\w*(\(.*\))?", one) and "NAME" not in one
    }
    assert (missing, names - words_of_the_sources()) == (set(), set())


def test_every_head_and_every_dataset_has_its_place_in_the_documents() -> None:
    heads, grid = ((ROOT / "docs" / page).read_text() for page in ("heads.md", "grid.md"))
    shown = set(re.findall(r"^## (\w+)$", heads, re.M))
    assert set(HEADS) - {BASELINE} <= shown
    (listed,) = re.findall(r"^- \*\*Known datasets\.\*\*.*?(?=^- |^$)", grid, re.M | re.S)
    named = yaml.safe_load((ROOT / "jobs" / "catalogue" / "datasets.yaml").read_text())
    assert [name for name in named if f"`{name}`" not in listed] == []


def test_every_key_of_a_dataset_is_explained_at_the_head_of_their_file() -> None:
    source = (ROOT / "jobs" / "catalogue" / "datasets.yaml").read_text()
    explained = set(re.findall(r"\w+", " ".join(re.findall(r"^#(.*)", source, re.M))))
    keys = {key for facts in yaml.safe_load(source).values() for key in facts}
    assert keys <= explained


def rows_of_faults() -> list[tuple[str, str]]:
    """Return the last cell of each row of the faults: a file and a function in it."""
    found = []
    for line in (ROOT / "docs" / "faults.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| fault "):
            path, _, name = line.rsplit("|", 2)[1].strip(" `").partition("::")
            found.append((path, name))
    return found


@pytest.mark.parametrize(("path", "name"), rows_of_faults())
def test_every_fault_in_the_documents_has_its_test(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def help_of(command: str) -> str:
    words = [sys.executable, "-m", "vtjobs.cli", *command.split(), "--help"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"no command {command!r}"
    return done.stdout


@pytest.mark.parametrize("command", shown_commands())
def test_every_command_in_the_documents_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    name = (
        " ".join(words[:2])
        if words[0] in ("data", "ledger", "config") and len(words) > 1
        else words[0]
    )
    text = help_of(name)
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in text, f"{command}: no option {word}"


@pytest.mark.paper("GR-10")
@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_every_grid_in_the_documents_is_valid(page: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    for example in (ROOT / "docs" / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    assert take_in(str(path), changes={}, max_runs=100_000).expansion.runs


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "examples").glob("*/*.yaml")), ids=lambda path: path.parent.name
)
def test_every_example_grid_is_valid(path: Path) -> None:
    assert take_in(str(path), changes={}, max_runs=100_000).expansion.runs


@pytest.mark.parametrize("name", catalogue.grid_names())
def test_every_built_in_grid_is_valid(name: str) -> None:
    assert take_in(name, changes={}, max_runs=100_000).expansion.runs


def test_the_reference_of_json_documents_is_that_of_their_types() -> None:
    assert json_reference.PAGE.read_text() == json_reference.page(), (
        "run: python -m tests.support.json_reference"
    )


@pytest.mark.parametrize("command", DOCUMENTS)
def test_every_key_of_a_json_document_has_a_meaning(command: str) -> None:
    records = schema_of(type_of(command))["$defs"].values()
    keys = [
        (key, value) for record in records for key, value in record.get("properties", {}).items()
    ]
    assert [key for key, value in keys if not value.get("description")] == []


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (name.split()[0], name)
        for name in json.loads(golden.DOCUMENTS.read_text())
        if name.split()[0] in DOCUMENTS
    ],
)
def test_what_a_command_prints_follows_its_schema(command: str, printed: str) -> None:
    schema = schema_of(type_of(command))
    # The golden files leave out what says when or where a document was made.
    for record in schema["$defs"].values():
        if "required" in record:
            record["required"] = [key for key in record["required"] if key not in golden.VOLATILE]
    jsonschema.validate(json.loads(golden.DOCUMENTS.read_text())[printed], schema)

"""The forms that results are read in, and how a path is told to be of one."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from ..errors import BadInput, one_of, suggest
from ..values import Value
from .mlflow_store import DATABASE, read_database, read_folder
from .record import Record
from .tables import read_csv, read_json
from .tensorboard_folder import EVENTS, read_tensorboard
from .timm_folder import ARGS, read_timm
from .wandb_folder import read_wandb

Reader = Callable[[Path], Iterator[Record]]


class Form(Value, frozen=True, kw_only=True):
    """One way in which programs keep results."""

    read: Reader
    """Reads a file, or a folder."""
    suffixes: tuple[str, ...] = ()
    """Ends of the names of files of this form."""
    marks: tuple[str, ...] = ()
    """Patterns of files: a folder that has one of them somewhere below is of this form."""


def _mlflow(path: Path) -> Iterator[Record]:
    if path.is_file():
        yield from read_database(path)
        return
    for file in sorted(path.rglob(DATABASE)):
        yield from read_database(file)
    yield from read_folder(path)


def _each(read: Reader, *suffixes: str) -> Reader:
    """Return a reader that also takes a folder, and reads every such file below it."""

    def reader(path: Path) -> Iterator[Record]:
        if path.is_file():
            yield from read(path)
            return
        found = {file for suffix in suffixes for file in path.rglob(f"*{suffix}")}
        for file in sorted(found):
            yield from read(file)

    return reader


def _files(suffixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"*{suffix}" for suffix in suffixes)


_CSV = (".csv", ".tsv")
# The programs of DeiT and its successors write `log.txt`, an object for each epoch.
_JSON = (".json", ".jsonl", ".ndjson", "log.txt")

# In the order in which a folder is looked at: one of timm's has CSV files too.
FORMS: dict[str, Form] = {
    "timm": Form(read=read_timm, marks=(ARGS,)),
    "mlflow": Form(read=_mlflow, suffixes=(".db",), marks=(DATABASE, "meta.yaml")),
    "wandb": Form(read=read_wandb, suffixes=(".wandb",), marks=("run-*.wandb",)),
    "tensorboard": Form(read=read_tensorboard, marks=(EVENTS,)),
    "csv": Form(read=_each(read_csv, *_CSV), suffixes=_CSV, marks=_files(_CSV)),
    "json": Form(read=_each(read_json, *_JSON), suffixes=_JSON, marks=_files(_JSON)),
}


def form_of(path: Path) -> str:
    """Return the form of a file or a folder.

    Raises:
        BadInput: it is not there, or of no form that is known.
    """
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    for name, form in FORMS.items():
        if path.is_file() and (path.name.endswith(form.suffixes) or _is_marked(path, form.marks)):
            return name
        if path.is_dir() and _has(path, form.marks):
            return name
    raise BadInput(f"{path}: its form is not known. Name it with --as: {one_of(FORMS)}")


def _is_marked(path: Path, marks: tuple[str, ...]) -> bool:
    return any(fnmatch(path.name, mark) for mark in marks)


def _has(path: Path, marks: tuple[str, ...]) -> bool:
    return any(next(path.rglob(mark), None) is not None for mark in marks)


def read(path: Path, form: str) -> Iterator[Record]:
    """Yield the records of a file or a folder.

    Raises:
        BadInput: the form is unknown, or the path is not of it.
    """
    if form not in FORMS:
        raise BadInput(f"--as {form}: unknown. {suggest(form, FORMS)}")
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    try:
        yield from FORMS[form].read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as {form} ({error})") from None

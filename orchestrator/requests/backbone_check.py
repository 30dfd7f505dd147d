"""Ask timm about the backbones of a grid, in a process of its own, and remember the answers."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...jobs.atomic_files import read_cache, to_json, write_over
from ...jobs.config.tools import NoAnswer, ask_tool
from ...jobs.documents import from_plain, to_plain
from ...jobs.errors import BadInput, Problem
from ...jobs.grid.expansion import Cell, Expansion
from ...jobs.grid.heads import HEADS
from ...jobs.grid.image_folder import cache_folder
from ...jobs.run.backbone_facts import Facts, Question
from ...jobs.run.settings import BackboneSettings, HeadSettings, SharedParameters
from ...jobs.run.spec import BASELINE, CellSpec, canonical, digest
from ...jobs.strict_yaml import Document
from ...jobs.values import changed

TIMEOUT_S = 300
# What a head may ask of the backbone's making.
_HEAD_FIELDS = ("positions", "mega", "labels", "blocks", "shuffle", "patch_augment")


def asked(expansion: Expansion) -> tuple[list[str], dict[str, Question]]:
    """Return the key of each cell's question, and the questions by key.

    Cells with other rates or losses ask the same. What would run a lab's own code is not asked.
    """
    by_parts: dict[Any, str] = {}
    keys: list[str] = []
    found: dict[str, Question] = {}
    for cell in expansion.cells:
        parent = expansion.cells[cell.parent].spec if cell.parent is not None else None
        parts = tuple(
            (spec.backbone, spec.dataset, spec.recipe, spec.head)
            for spec in (cell.spec, parent)
            if spec is not None
        )
        if parts not in by_parts:
            question = ask(cell.spec, parent, expansion.paths)
            by_parts[parts] = key = _key(question)
            if not _has_own_source(question):
                found[key] = question
        keys.append(by_parts[parts])
    return keys, found


def _has_own_source(question: Question) -> bool:
    """Return whether an answer would run a lab's own code, which submission never does."""
    teacher = question.teacher
    return (
        question.backbone.source is not None
        or (isinstance(teacher, BackboneSettings) and teacher.source is not None)
        or (question.parent is not None and _has_own_source(question.parent))
    )


def ask(
    cell: CellSpec,
    parent: CellSpec | None = None,
    paths: Mapping[str, str] = MappingProxyType({}),
) -> Question:
    """Return what the making of a cell's backbone depends on.

    Of one that starts from another cell, that one too.

    Args:
        cell: its parts.
        parent: of the cell that it starts from or learns from.
        paths: fingerprint of a weights file -> where it lies.
    """
    settings = cell.settings
    shape, head = changed(settings.shape, drop_path_rule="model"), settings.head
    usual = SharedParameters()
    asked = {
        name: value
        for name in _HEAD_FIELDS
        if (value := getattr(head.shared, name)) != getattr(usual, name)
    }
    teacher = None
    if (distillation := head.distillation) is not None:
        teacher = distillation.teacher
    weights = settings.backbone.weights
    file = paths.get(weights.fingerprint) if weights is not None else None
    # A parent's weights are what it starts from.
    starts_from_file = file is not None and parent is None
    return Question(
        backbone=settings.backbone
        if starts_from_file
        else changed(settings.backbone, weights=None),
        weights_file=file if starts_from_file else None,
        shape=shape,
        head=_projecting(head) or HeadSettings(name=BASELINE, params=asked),
        parent=ask(parent) if parent is not None else None,
        teacher=changed(teacher, weights=None)
        if isinstance(teacher, BackboneSettings)
        else teacher,
        trainable=settings.recipe.trainable,
        frozen=settings.recipe.frozen,
        init_only=settings.recipe.init_only,
        by_layer=settings.recipe.layer_decay is not None,
    )


def _projecting(head: HeadSettings) -> HeadSettings | None:
    """Return a head that works on the features, with what the making of a backbone depends on."""
    grafit = head.grafit
    if grafit is None:
        return None
    same = changed(
        grafit, weight=1.0, instance_weight=1.0, temperature=1.0, target_decay=0.0, views=1
    )
    return HeadSettings(name=head.name, params=to_plain(same))


def _key(question: Question) -> str:
    return digest(canonical(to_plain(question)))


def answers(wanted: Mapping[str, Question]) -> dict[str, Facts]:
    """Return facts or an error for each question, from the cache or from timm."""
    try:
        timm_version = version("timm")
    except PackageNotFoundError:
        return {}
    path: Path = cache_folder() / f"backbones-{timm_version}.json"
    known = _known(path)
    missing = {key: question for key, question in wanted.items() if key not in known}
    if missing:
        fresh = _describe(missing)
        # Errors are not remembered: they may come from a broken installation.
        known |= {key: answer for key, answer in fresh.items() if answer.error is None}
        write_over(path, to_json(to_plain(known)))
        known |= fresh
    return {key: known[key] for key in wanted}


def _known(path: Path) -> dict[str, Facts]:
    try:
        return from_plain(read_cache(path), dict[str, Facts])
    except ValueError:
        # Of another version: asked anew.
        return {}


def _describe(missing: dict[str, Question]) -> dict[str, Facts]:
    try:
        answer = ask_tool("backbone_facts", missing, timeout_s=TIMEOUT_S)
    except NoAnswer as error:
        raise BadInput(f"backbones cannot be checked: {error}") from None
    return from_plain(answer, dict[str, Facts])


def check_backbones(
    expansion: Expansion, document: Document, *, halves: bool = False
) -> list[Problem]:
    """Return every reason why a cell's backbone cannot be made or carry its head.

    Args:
        expansion: the grid's cells.
        document: the grid's file.
        halves: whether the grid allows smaller micro-batches, on which BatchNorm's statistics would
            depend.
    """
    keys, wanted = asked(expansion)
    found = answers(wanted)
    problems: list[Problem] = []
    for cell, key in zip(expansion.cells, keys, strict=True):
        problem = None
        if halves and cell.spec.settings.recipe.sync_bn:
            message = "shares that normalise together are not cut into micro-batches"
            fix = "Remove halve_micro_batch, or set train: {sync_bn: false}"
            problem = document.problem(("halve_micro_batch",), message, fix)
        elif (answer := found.get(key)) is not None:
            problem = _problem(cell, answer, document, halves=halves)
        if problem is not None and problem not in problems:
            problems.append(problem)
    return problems


def _problem(cell: Cell, answer: Facts, document: Document, *, halves: bool) -> Problem | None:
    """Return why a backbone that has been asked about cannot be made or carry its head."""
    where, head = cell.entries[0].path, cell.spec.settings.head
    if answer.error is not None:
        return document.problem(where, answer.error)
    if not head.is_own and HEADS[head.name].is_spatial and min(answer.grid) < 2:
        size = "x".join(map(str, answer.grid))
        message = (
            f"backbone {cell.labels['backbone']} has a {size} token grid; head {head.name}"
            " needs at least 2x2"
        )
        return document.problem(where, message, "Raise train.image_size or use a smaller patch")
    if (small := _normalises_one_value(cell, answer)) and _fewest(cell) * head.views == 1:
        whole = cell.spec.settings.recipe.sync_bn
        least = "the smallest batch" if whole else "a virtual rank's smallest share of a batch"
        message = f"{least} is one image; BatchNorm on {small} needs at least two"
        fix = "Set train.drop_last: true or another train.batch_size"
        return document.problem(("train",), message, fix)
    if halves and (name := _with_batch_norm(cell, answer)) is not None:
        message = f"{name} has BatchNorm, whose statistics depend on the micro-batch"
        return document.problem(("halve_micro_batch",), message, "Remove halve_micro_batch")
    return None


def _normalises_one_value(cell: Cell, answer: Facts) -> str | None:
    """Return where BatchNorm sees one value of each channel of an image, or None."""
    if _has_hidden_layer(cell.spec.settings.head):
        return "the features of grafit"
    if cell.spec.settings.recipe.classifier == "mlp":
        return "the features of the classifier"
    if answer.batch_norm and min(answer.grid) == 1:
        return f"the 1x1 feature map of {cell.labels['backbone']}"
    return None


def _with_batch_norm(cell: Cell, answer: Facts) -> str | None:
    """Return what has BatchNorm, as a user calls it, or None."""
    if cell.spec.settings.recipe.classifier == "mlp":
        return "train.classifier: mlp"
    if answer.batch_norm:
        return f"backbone {cell.labels['backbone']}"
    head = cell.spec.settings.head
    return f"head {head.name}" if _has_hidden_layer(head) else None


def _has_hidden_layer(head: HeadSettings) -> bool:
    return head.grafit is not None and head.grafit.has_hidden_layer


def _fewest(cell: Cell) -> int:
    """Return the fewest images that are ever normalised together.

    These are a virtual rank's share, empty ones left out; with `sync_bn` a whole batch.
    """
    settings = cell.spec.settings
    recipe = settings.recipe
    ranks = 1 if recipe.sync_bn else recipe.virtual_ranks
    rest = 0 if recipe.drop_last else settings.dataset.trained_on % recipe.batch_size
    whole = recipe.batch_size // ranks
    return min(whole, max(1, rest // ranks)) if rest else whole

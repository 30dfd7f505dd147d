"""Answer questions about backbones.

`python -m vtjobs.workers.tools.backbone_facts` reads them as JSON and prints the facts.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ...jobs.documents import from_plain, to_plain
from ...jobs.run.backbone_facts import Facts, Question
from ...jobs.run.settings import STAGE, BackboneSettings
from ...jobs.values import changed
from ..process import hidden


def describe(question: Question) -> Facts:
    """Return what timm says of a backbone, or an error in its words."""
    # Here, not under the device below: torch 2.6 cannot import its compiler under one, and timm
    # imports it.
    with hidden("wandb"):
        import timm  # noqa: F401
    import torch

    from ..errors import BackboneError
    from ..heads.base import build_on_features, is_on_features
    from ..models.backbones import batch_norms, build, cell_side, input_side
    from ..models.tokens import grid_shapes
    from ..training.parts import require_layers, trained_of
    from ..training.trainee import tap_of

    name, head, shape = question.backbone.model, question.head, question.shape
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                _check_decoded(question)
                model = build(question.backbone, changed(shape, task="classification"), head)
                side = input_side(head, model, shape.image_size)
                grid = grid_shapes(tap_of(model, head), shape.channels, side)[-1]
                if min(grid.height, grid.columns) > 0:
                    cell_side(head, name, grid, side)
                if is_on_features(head):
                    build_on_features(head, model)
                _check_weights(question, model)
                trained_of(model, question.trainable, question.frozen)
                if question.by_layer:
                    require_layers(model)
        except BackboneError as error:
            failure = str(error)
            continue
        # Whatever a model's forward raises on an input that it cannot take.
        except Exception as error:
            failure = f"backbone {name}: {str(error).splitlines()[0]}"
            continue
        if min(grid.height, grid.columns) < 1:
            # Not every torch notices that a patch is larger than the image.
            left = f"no token is left of a {shape.image_size}-pixel image"
            return Facts(error=f"backbone {name}: {left}")
        return Facts(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            width=grid.width,
            grid=(grid.height, grid.columns),
            batch_norm=bool(batch_norms(model)),
        )
    return Facts(error=failure)


def _check_decoded(question: Question) -> None:
    """Find out whether a backbone can be decoded into masks, or objects.

    Raises:
        BackboneError: its blocks are not known, or give no maps to decode.
        Exception: whatever a forward pass raises on maps that are too small.
    """
    import torch

    from ..models.backbones import build

    shape = question.shape
    if shape.task == "classification":
        return
    # Of a detector it is enough that it can be made.
    decoded = build(question.backbone, shape, question.head)
    if shape.task == "segmentation":
        decoded(torch.zeros(2, shape.channels, shape.image_size, shape.image_size))


def _check_weights(question: Question, model: Any) -> None:
    """Find out whether a model can take the weights that it starts from, or a teacher those that
    it was trained with.

    Raises:
        BackboneError: it cannot, at this image size, with these channels or classes.
    """
    from ..checkpoints.weights import fit, start_from, taken
    from ..models.backbones import build

    teacher, parent, shape = question.teacher, question.parent, question.shape
    weights = question.backbone.weights
    if weights is not None and question.weights_file is not None:
        start_from(model, weights, Path(question.weights_file))
    if isinstance(teacher, BackboneSettings):
        build(teacher, changed(shape, classifier="linear"))
    if parent is None:
        return
    given = build(parent.backbone, parent.shape, parent.head)
    if teacher == STAGE:
        taught = changed(shape, task="classification", classifier=parent.shape.classifier)
        model = build(parent.backbone, taught, parent.head)
    sizes = f"at {parent.shape.image_size} and {shape.image_size} pixels"
    what = f"weights of {parent.backbone.model} {sizes}"
    taken(fit(model, given.state_dict(), what), question.init_only, what)


def main() -> int:
    """Serve one batch of questions."""
    asked = from_plain(json.load(sys.stdin), dict[str, Question])
    found = {key: describe(question) for key, question in asked.items()}
    json.dump(to_plain(found), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

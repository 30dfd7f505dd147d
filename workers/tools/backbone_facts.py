"""Answer questions about backbones.

`python -m vtjobs.workers.tools.backbone_facts` reads them as JSON and prints the facts.
"""

import json
import sys
from typing import Any

from ...jobs.run.spec import STAGE


def describe(question: dict[str, Any]) -> dict[str, Any]:
    """Return parameters, token grid, width and whether there are batch norms.

    Or an error in timm's words.
    """
    # Here, not under the device below: torch 2.6 cannot import its compiler under one, and timm
    # imports it.
    import timm  # noqa: F401
    import torch

    from ..errors import BackboneError
    from ..models.backbones import batch_norms, build, cell_side, input_side
    from ..models.tokens import grid_shapes
    from ..training.trainee import tap_of

    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                head, size = question["head"], question["recipe"]["image_size"]
                model = build(question["backbone"], question["dataset"], question["recipe"], head)
                side = input_side(head, model, size)
                grid = grid_shapes(tap_of(model, head), question["dataset"]["channels"], side)[-1]
                if min(grid.height, grid.columns) > 0:
                    cell_side(head, question["backbone"]["model"], grid, side)
                _check_weights(question, model)
        except BackboneError as error:
            failure = str(error)
            continue
        except (
            Exception
        ) as error:  # whatever a model's forward raises on an input that it cannot take
            failure = f"backbone {question['backbone']['model']}: {str(error).splitlines()[0]}"
            continue
        if min(grid.height, grid.columns) < 1:
            # Not every torch notices that a patch is larger than the image.
            name, size = question["backbone"]["model"], question["recipe"]["image_size"]
            return {"error": f"backbone {name}: no token is left of a {size}-pixel image"}
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "width": grid.width,
            "grid": [grid.height, grid.columns],
            "batch_norm": bool(batch_norms(model)),
        }
    return {"error": failure}


def _check_weights(question: dict[str, Any], model: Any) -> None:
    """Find out whether a model can take its parent's weights, or a teacher those that it was
    trained with.

    Raises:
        BackboneError: it cannot, at this image size, with these channels or classes.
    """
    from ..checkpoints.weights import fit
    from ..models.backbones import build

    teacher, parent = question.get("teacher"), question.get("parent")
    if teacher not in (None, STAGE):
        build(teacher, question["dataset"], question["recipe"])
    if parent is None:
        return
    given = build(parent["backbone"], parent["dataset"], parent["recipe"], parent["head"])
    if teacher == STAGE:
        model = build(parent["backbone"], question["dataset"], question["recipe"], parent["head"])
    sizes = f"at {parent['recipe']['image_size']} and {question['recipe']['image_size']} pixels"
    fit(model, given.state_dict(), f"weights of {parent['backbone']['model']} {sizes}")


def main() -> int:
    """Serve one batch of questions."""
    asked = json.load(sys.stdin)
    json.dump({key: describe(question) for key, question in asked.items()}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A lab's own backbone, made from the source that came with the run."""

import inspect
from typing import Any

from torch import nn

from ...jobs.run.settings import BackboneSettings, ModelShape
from ..own_parts import OwnPartError, load

# What training asks of a model beside being a module, as timm's have it.
ASKED = ("forward_features", "forward_head")


def own_arguments(backbone: BackboneSettings, shape: ModelShape) -> dict[str, Any]:
    """Return what a lab's own function or class is called with.

    Beside the grid's arguments it gets of `num_classes`, `in_chans`, `img_size`, `drop_rate` and
    `drop_path_rate` those that it takes.
    """
    offered: dict[str, Any] = {
        "num_classes": shape.classes,
        "in_chans": shape.channels,
        "img_size": shape.image_size,
    }
    if shape.dropout is not None:
        offered["drop_rate"] = shape.dropout
    if shape.drop_path is not None:
        offered["drop_path_rate"] = shape.drop_path
    taken = inspect.signature(_function_of(backbone)).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
    given = {name: value for name, value in offered.items() if takes_all or name in taken}
    return {**backbone.args, **given}


def build_own(backbone: BackboneSettings, shape: ModelShape) -> nn.Module:
    """Make a lab's own backbone, drawing its weights from torch's default generator.

    Whatever its function raises is raised here.

    Raises:
        OwnPartError: it makes no model that training can use.
    """
    model = _function_of(backbone)(**own_arguments(backbone, shape))
    if not isinstance(model, nn.Module):
        raise OwnPartError(f"backbone {backbone.model}: must make a torch.nn.Module")
    lacking = [name for name in ASKED if not callable(getattr(model, name, None))]
    if lacking:
        what = " and ".join(lacking)
        raise OwnPartError(f"backbone {backbone.model}: the model has no method {what}")
    return model


def _function_of(backbone: BackboneSettings) -> Any:
    assert backbone.source is not None
    return load("backbone", backbone.model, backbone.source)

"""What stands in a backbone's classifier's place: a projector (Touvron 2022, thesis, 2.3.1)."""

import inspect
from typing import Any

from torch import Tensor, nn

from ...jobs.run.settings import GrafitParameters
from ..errors import BackboneError

# Of the hidden layer. The thesis gives no number; with this one and 256 outputs the weights of
# ResNet-50 are the 32.9 million of its Table 2.7. BYOL (Grill et al. 2020) has the same.
HIDDEN = 4096


class Projector(nn.Module):
    """Layers that map features to embeddings, [B, width] -> [B, dim]."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        # A name of its own, which `checkpoints.weights.PROJECTOR` knows: none of its weights is
        # taken for a classifier's.
        self.grafit_projector = layers

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.grafit_projector(features)
        return found


def two_layers(width: int, dim: int) -> nn.Sequential:
    """Return BYOL's two-layer perceptron, [B, width] -> [B, dim]."""
    return nn.Sequential(
        nn.Linear(width, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, dim)
    )


def replace_classifier(model: Any, name: str, params: GrafitParameters) -> None:
    """Put a projector in the place of a model's classifier; `none` leaves its features.

    Args:
        model: of timm, or with its methods.
        name: of the backbone, for an error.
        params: `projector` and `dim`.

    Raises:
        BackboneError: the classifier is no single linear layer.
    """
    if not hasattr(model, "reset_classifier"):
        raise BackboneError(f"backbone {name}: its classifier cannot be replaced")
    if params.projector == "none":
        model.reset_classifier(0)
        return
    model.reset_classifier(params.dim)
    found = model.get_classifier()
    if not isinstance(found, nn.Linear):
        raise BackboneError(
            f"backbone {name}: a projector needs a linear classifier to replace;"
            f" this one is {type(found).__name__}. Write projector: none"
        )
    made = two_layers(found.in_features, params.dim) if params.projector == "mlp" else found
    _put(model, Projector(made))


def widen_classifier(model: Any, name: str) -> None:
    """Put a classifier with a hidden layer in the place of a linear one (thesis, section 2.4.6).

    A run that begins with the weights of another one with such a classifier takes over its hidden
    layer, whatever the classes are.

    Args:
        model: of timm, or with its methods.
        name: of the backbone, for an error.

    Raises:
        BackboneError: the classifier is no single linear layer, or cannot be got at.
    """
    if not hasattr(model, "get_classifier"):
        raise BackboneError(f"backbone {name}: its classifier cannot be replaced")
    found = model.get_classifier()
    if not isinstance(found, nn.Linear):
        raise BackboneError(
            f"backbone {name}: `classifier: mlp` takes the place of a linear classifier;"
            f" this one is {type(found).__name__}. Write classifier: linear"
        )
    _put(model, two_layers(found.in_features, found.out_features))


def _put(model: Any, layers: nn.Module) -> None:
    """Put layers in the place of what a model gives out as its classifier."""
    parent, _, attribute = classifier_path(model).rpartition(".")
    setattr(model.get_submodule(parent), attribute, layers)


def classifier_path(model: Any) -> str:
    """Return the name of what a model gives out as its classifier, or of the projector there."""
    found = model.get_classifier()
    return next(path for path, module in model.named_modules() if module is found)


def shows_features(model: Any) -> bool:
    """Return whether a model gives out what its classifier gets, as timm's models do."""
    return "pre_logits" in inspect.signature(model.forward_head).parameters


def embed(model: Any, tokens: Any, *, classifies: bool) -> Tensor:
    """Return the embeddings of images, [B, D].

    Args:
        model: the backbone.
        tokens: what its `forward_features` returned.
        classifies: whether its last layer is a classifier, which embeddings come before.
    """
    found: Tensor = model.forward_head(tokens, **({"pre_logits": True} if classifies else {}))
    return found.flatten(1)


def embedding_width(model: Any, params: GrafitParameters) -> int:
    """Return D of `embed`.

    Raises:
        BackboneError: the model does not say.
    """
    if params.projector != "none":
        return params.dim
    for name in ("head_hidden_size", "num_features"):
        if (width := getattr(model, name, None)) is not None:
            return int(width)
    raise BackboneError(
        f"grafit: {type(model).__name__} does not say how many features its classifier gets."
        " Set its attribute num_features"
    )

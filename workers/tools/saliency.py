"""Where a network looks: attention of its class token, and class activation maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...jobs.errors import BadInput
from ..errors import BackboneError
from ..models.tokens import blocks_of, grid_size, token_grid


class _Attention(NamedTuple):
    queries: int
    weights: Tensor
    """[B, heads, queries, keys] after the softmax; of the first query alone, or of all."""


@dataclass
class _Attentions(TorchFunctionMode):
    """Sees the queries and keys of every attention that torch computes while it is entered."""

    of_all: bool
    """Whether the attention of all queries is kept, or that of the first alone."""
    found: list[_Attention] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key = args[:2]
            asking = query if self.of_all else query[..., :1, :]
            mask = args[3] if len(args) > 3 else given.get("attn_mask")
            if mask is not None and not self.of_all:
                mask = mask[..., :1, :]
            self.found.append(
                _Attention(query.shape[-2], _weights(asking, key, mask, given.get("scale")))
            )
        return func(*args, **given)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return softmax(q kᵀ · scale), scale being 1 / √d if none is given."""
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        hidden = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if hidden else scores + mask
    return scores.float().softmax(-1)


def _seen(
    model: nn.Module, images: Tensor, *, of_all: bool = False
) -> tuple[list[_Attention], Tensor]:
    """Return every attention of a forward pass, and the features.

    Args:
        model: in evaluation mode; its layers that compute attention step by step are made to call
            torch's for this pass.
        images: [B, C, S, S], normalised.
        of_all: whether the attention of all queries is wanted, or that of the first alone.

    Raises:
        BadInput: the features are not one tensor.
    """
    fused = [module for module in model.modules() if hasattr(module, "fused_attn")]
    before = [module.fused_attn for module in fused]
    try:
        for module in fused:
            module.fused_attn = True
        with _Attentions(of_all) as seen:
            features = model.forward_features(images)
            model.forward_head(features)
    finally:
        for module, value in zip(fused, before, strict=True):
            module.fused_attn = value
    if not isinstance(features, Tensor):
        raise BadInput(f"--kind attention: the features of {type(model).__name__} are not one grid")
    return seen.found, features


@torch.no_grad()
def attention_of_classes(model: nn.Module, images: Tensor) -> Tensor | None:
    """Return how each class's own token attends to the patches, [B, classes, h, w].

    The mean over heads; None where all classes share a token.

    Args:
        model: in evaluation mode.
        images: [B, C, S, S], normalised.
    """
    if not getattr(model, "is_per_class", False):
        return None
    (attention,), features = _seen(model, images, of_all=True)
    height, columns = token_grid(model, features).shape[1:3]
    return attention.weights.mean(1).unflatten(-1, (height, columns))


@torch.no_grad()
def class_attention(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return how the class token attends to the patches: [B, heads, h, w] of each layer.

    Layers whose only query is the class token (CaiT, PatchConvNet) are all given, else the last
    layer alone. The weights are those after the softmax; what falls on the class token itself is
    left out.

    Args:
        model: in evaluation mode.
        images: [B, C, S, S], normalised.

    Raises:
        BadInput: no attention of a class token to patches is seen.
    """
    found, features = _seen(model, images)
    count = _patches(model, features)
    # A Swin whose window is a single token has one query and one key.
    alone = [one.weights for one in found if one.queries == 1 and one.weights.shape[-1] > 1]
    joined = [
        one.weights
        for one in found
        if has_class_token(model) and one.queries == _prefix(model) + count
    ]
    maps = [_on_patches(model, attention) for attention in alone or joined[-1:]]
    if not maps or any(one is None for one in maps):
        raise BadInput(
            f"--kind attention: vtjobs sees no attention of a class token to patches in"
            f" {type(model).__name__}. Try --kind cam"
        )
    return [one for one in maps if one is not None]


def has_class_token(model: nn.Module) -> bool:
    """Whether a class token is among the tokens of every block."""
    return getattr(model, "cls_token", None) is not None and _prefix(model) > 0


def _prefix(model: nn.Module) -> int:
    """Return how many tokens stand before the patches; a distilled PiT has two in `cls_token`."""
    token = getattr(model, "cls_token", None)
    count = token.shape[1] if isinstance(token, Tensor) and token.ndim == 3 else 1
    return int(getattr(model, "num_prefix_tokens", count))


def _patches(model: nn.Module, features: Tensor) -> int:
    try:
        return token_grid(model, features)[0, ..., 0].numel()
    except BackboneError:
        return 0


def _on_patches(model: nn.Module, attention: Tensor) -> Tensor | None:
    """Return the first query's attention to patches, [B, heads, h, w]; None if they are no grid."""
    weights = attention[:, :, 0]
    # Keys may be merged to a coarser grid (CvT), and a layer with the class token as its only
    # query may have it among its keys or not.
    for prefix in (_prefix(model), 1, 0):
        size = grid_size(model, weights.shape[-1] - prefix)
        if size is not None:
            return weights[..., prefix:].unflatten(-1, size)
    return None


def class_activation(model: nn.Module, images: Tensor, classes: Sequence[Tensor]) -> list[Tensor]:
    """Return gradient-weighted class activation maps, [B, h, w] of each class.

    ReLU of the sum over channels of the features, each weighted by the mean over places of the
    gradient of the class's logit (Selvaraju et al. 2017, eqs. 1 and 2). The features are those of
    the last block whose patches the classifier depends on. Of a ViT that is the last but one, or
    what its only block gets, as its last block hands on the class token alone. Where the classifier
    is a linear layer on the mean of the features, this is the class activation map of Zhou et al.
    2016 without its negative part.

    Args:
        model: in evaluation mode, with a classifier.
        images: [B, C, S, S], normalised.
        classes: [B] int64 each.

    Raises:
        BadInput: the features form no grid.
    """
    tokens: list[Tensor] = []
    blocks = _blocks_or_none(model)
    handles = [
        *(block.register_forward_pre_hook(_keeping_first(tokens.append)) for block in blocks[:1]),
        *(block.register_forward_hook(_keeping(tokens.append)) for block in blocks),
    ]
    try:
        with torch.enable_grad():
            # What is frozen gives no gradient, and a gradient is all that is wanted.
            features = model.forward_features(images.detach().requires_grad_())
            logits = model.forward_head(features).float()
    finally:
        for handle in handles:
            handle.remove()
    if isinstance(features, Tensor):
        tokens.append(features)
    return [_map(model, tokens, logits, chosen) for chosen in classes]


def _map(model: nn.Module, tokens: list[Tensor], logits: Tensor, chosen: Tensor) -> Tensor:
    score = logits.gather(1, chosen[:, None]).sum()
    # Of some models blocks see parts of patches, as images of their own (TNT).
    tokens = [one for one in tokens if len(one) == len(chosen)]
    found: Sequence[Tensor | None] = ()
    if tokens:
        found = torch.autograd.grad(score, tokens, retain_graph=True, allow_unused=True)
    for one, gradient in zip(reversed(tokens), reversed(found), strict=True):
        if gradient is None or _is_class_token(model, one):
            continue
        try:
            slopes, values = (token_grid(model, part.detach().float()) for part in (gradient, one))
        except BackboneError:
            continue
        if slopes.any():
            return F.relu((slopes.mean((1, 2), keepdim=True) * values).sum(-1))
    raise BadInput(
        f"--kind cam: no features of {type(model).__name__} that its classifier depends on form a"
        " grid"
    )


def _is_class_token(model: nn.Module, tokens: Tensor) -> bool:
    """Whether tokens are the class token alone, without patches (PiT)."""
    return tokens.ndim == 3 and has_class_token(model) and tokens.shape[1] == _prefix(model)


def _keeping(keep: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            keep(output)

    return hook


def _keeping_first(keep: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(_module: nn.Module, inputs: Any) -> None:
        if isinstance(inputs[0], Tensor):
            keep(inputs[0])

    return hook


def _blocks_or_none(model: nn.Module) -> list[nn.Module]:
    try:
        return blocks_of(model)
    except BackboneError:
        return []

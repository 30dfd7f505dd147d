"""BatchNorm over the whole batch: layers that normalise by the images of all shares together."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm


class Meeting(Protocol):
    """Where the forward passes of all shares come together."""

    @property
    def is_on(self) -> bool:
        """Whether forward passes that come together are under way."""

    def meet(self, layer: "SyncedNorm", values: Tensor) -> Tensor:
        """Return the layer's output for one share, once every share has got to the layer."""


class Exchange(Protocol):
    """Gives every rank the rows of all ranks."""

    @property
    def counts(self) -> Sequence[bool]:
        """Whether each of this rank's shares has images; its row is zeros if not."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the rows of all shares, in their order.

        Args:
            rows: [this rank's shares, D] float64.

        Returns:
            [all shares, D], the same on every rank.
        """


class SyncedNorm(_BatchNorm):
    """A BatchNorm layer whose mean and variance are those of the whole batch.

    It takes the place of another layer, whose parameters and buffers it holds by the same names.
    While no meeting is under way, and in evaluation, it does what that layer does.

    Args:
        layer: whose place it takes.
        meeting: where it meets the other shares.
    """

    def __init__(self, layer: _BatchNorm, meeting: Meeting) -> None:
        super().__init__(
            layer.num_features,
            eps=layer.eps,
            momentum=layer.momentum,
            affine=False,
            track_running_stats=False,
        )
        self.affine, self.track_running_stats = layer.affine, layer.track_running_stats
        self.weight, self.bias = layer.weight, layer.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self._buffers[name] = getattr(layer, name)
        self.training = layer.training
        self.meeting = meeting
        # Of timm's layers that have an activation of their own.
        self.drop: nn.Module = getattr(layer, "drop", nn.Identity())
        self.act: nn.Module = getattr(layer, "act", nn.Identity())

    def forward(self, values: Tensor) -> Tensor:
        """Normalise [B, C, ...] over all dimensions but the second."""
        if self.training and self.meeting.is_on:
            found = self.meeting.meet(self, values)
        else:
            found = self._by_itself(values)
        out: Tensor = self.act(self.drop(found))
        return out

    def _by_itself(self, values: Tensor) -> Tensor:
        moves = self.training and self.track_running_stats
        keeps = moves or not self.training
        return F.batch_norm(
            values,
            self.running_mean if keeps else None,
            self.running_var if keeps else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._factor() if moves else 0.0,
            self.eps,
        )

    def _factor(self) -> float:
        """Count one more batch; return its weight in the running statistics."""
        if self.num_batches_tracked is None:
            return self.momentum or 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def normalise_shares(self, shares: Sequence[Tensor], exchange: Exchange) -> list[Tensor]:
        """Return the normalised values of this rank's shares, and move the running statistics.

        Args:
            shares: values of each share of this rank, [B, C, ...].
            exchange: between the ranks.
        """
        found = _Normalise.apply(exchange, self.eps, self.weight, self.bias, *shares)
        *outputs, mean, variance, count = found
        if self.track_running_stats and self.running_mean is not None:
            factor = self._factor()
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            self.running_var.lerp_(unbiased.to(self.running_mean.dtype), factor)
        return outputs


def synchronise(model: nn.Module, meeting: Meeting) -> bool:
    """Put a layer that normalises by the whole batch in the place of every BatchNorm layer.

    Args:
        model: that is changed.
        meeting: where the layers meet those of other shares.

    Returns:
        Whether there was any.
    """
    found = False
    for name, child in model.named_children():
        if isinstance(child, _BatchNorm):
            setattr(model, name, SyncedNorm(child, meeting))
            found = True
        else:
            found |= synchronise(child, meeting)
    return found


class _Normalise(torch.autograd.Function):
    """Normalisation of several shares by the statistics of all shares of all ranks.

    Forward and backward formula are those of Ioffe and Szegedy (2015), section 3. Sums over a share
    are in float32, those over shares in float64 and in the order of the shares: so they are the
    same on every rank.
    """

    @staticmethod
    def forward(
        ctx: Any,
        exchange: Exchange,
        eps: float,
        weight: Tensor | None,
        bias: Tensor | None,
        *shares: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the outputs of the shares; mean [C], variance [C] (float64) and count [1]."""
        moments = [torch.var_mean(_rows(share), dim=1, correction=0) for share in shares]
        counts = [share.numel() // share.shape[1] for share in shares]
        rows = [
            torch.cat([mean.new_full((1,), count), mean, variance]).double()
            for (variance, mean), count in zip(moments, counts, strict=True)
        ]
        every = exchange(torch.stack(rows))
        channels = shares[0].shape[1]
        count, means, variances = every.split([1, channels, channels], dim=1)
        total = count.sum(0)
        mean = (count * means).sum(0) / total
        variance = (count * (variances + (means - mean) ** 2)).sum(0) / total
        scale = (variance + eps).rsqrt()
        center, scale = mean.float(), scale.float()
        ctx.exchange, ctx.has_bias = exchange, bias is not None
        ctx.save_for_backward(weight, center, scale, total, *shares)
        ctx.mark_non_differentiable(mean, variance, total)
        outputs = [_affine(_standard(share, center, scale), weight, bias) for share in shares]
        same = [output.to(share.dtype) for output, share in zip(outputs, shares, strict=True)]
        return (*same, mean, variance, total)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
        """Return the gradients of weight, bias and the shares."""
        weight, center, scale, total, *shares = ctx.saved_tensors
        gradients = given[: len(shares)]
        sums = []
        for share, gradient in zip(shares, gradients, strict=True):
            # Not kept: in float32 it is as large as the share, or twice.
            standard = _standard(share, center, scale)
            sums.append(torch.cat([_rows(gradient).sum(1), _rows(gradient * standard).sum(1)]))
        rows = torch.stack(sums).double()
        of_bias, of_weight = rows.sum(0).float().chunk(2)
        plain, along = (ctx.exchange(rows).sum(0) / total).float().chunk(2)
        factor = scale if weight is None else scale * weight.float()
        inputs = []
        for share, gradient, has_images in zip(shares, gradients, ctx.exchange.counts, strict=True):
            found = gradient.float()
            if has_images:
                along_share = _standard(share, center, scale) * _wide(along, share)
                found = found - _wide(plain, share) - along_share
            inputs.append((_wide(factor, share) * found).to(share.dtype))
        return (
            None,
            None,
            None if weight is None else of_weight.to(weight.dtype),
            of_bias.to(weight.dtype) if ctx.has_bias else None,
            *inputs,
        )


def _rows(values: Tensor) -> Tensor:
    """Return [B, C, ...] as [C, all the rest] float32."""
    return values.float().transpose(0, 1).flatten(1)


def _wide(channels: Tensor, values: Tensor) -> Tensor:
    """Return [C] in a shape that is broadcast over [B, C, ...]."""
    return channels.view(-1, *[1] * (values.dim() - 2))


def _standard(values: Tensor, center: Tensor, scale: Tensor) -> Tensor:
    return (values.float() - _wide(center, values)) * _wide(scale, values)


def _affine(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        values = values * _wide(weight.float(), values)
    return values if bias is None else values + _wide(bias.float(), values)

"""Label-smoothed cross-entropy that never stores the logits of a full batch.

The logits are the largest matrix in a step: a few thousand rows and several thousand columns. The
usual implementation stores this matrix three times. This module computes the logits in chunks of a
few hundred rows, uses each chunk for the loss and the gradients, and then frees it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtcli.data.batches import Batch
from mtcli.models.base import TrainableModel
from mtcli.models.linear import product_dtype, product_rows
from mtcli.tokenizer import IGNORE_INDEX

_CHUNK = 2**22  # maximum number of logits in memory at the same time


def summed_loss(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy of `labels` [B, T], summed over the target tokens.

    The logits are `hidden` [B, T, D] times the transpose of `weight` [V, D]. The loss is a sum, so
    that every target token has the same weight, regardless of the batch size.
    """
    is_target = labels != IGNORE_INDEX
    options = _LossOptions(smoothing, product_dtype(hidden), torch.is_grad_enabled())
    # The function casts the operands of its matrix products.
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(
            hidden[is_target], weight, labels[is_target], options
        )  # type: ignore[no-untyped-call]
    return loss


@dataclass(frozen=True)
class _LossOptions:
    smoothing: float
    dtype: torch.dtype  # of the matrix products
    has_gradients: bool


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy that computes gradients in the forward pass, while the logits are in memory.

    With smoothing e, the loss of a row with logits z and label y is
        logsumexp(z) - (1 - e) z_y - e mean(z),
    and its gradient is softmax(z) - (1 - e) onehot(y) - e / V. The last term is the same for all
    vocabulary entries, so it is computed without the logits, from the sums of `weight` and `x` over
    their rows.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, options: _LossOptions
    ) -> Tensor:
        smoothing, has_gradients = options.smoothing, options.has_gradients
        w = weight.to(options.dtype)
        uniform = smoothing / len(w)  # e / V
        w_sum = weight.to(x.dtype).sum(dim=0)  # [D]
        total = -uniform * (x @ w_sum).sum(dtype=torch.float32)
        x_gradient = torch.empty_like(x) if has_gradients else None
        w_gradient = torch.zeros_like(weight) if has_gradients else None
        n_rows = max(1, _CHUNK // len(w))
        for start in range(0, len(x), n_rows):
            targets = labels[start : start + n_rows, None]
            rows = product_rows(x[start : start + n_rows], options.dtype)
            logits = (rows @ w.T)[: len(targets)].float()  # [N, V]
            target_logits = logits.gather(1, targets)  # [N, 1]
            # Overwrite the logits, which are no longer needed.
            probs = torch.softmax(logits, dim=1, out=logits)
            # logsumexp(z) = z_y - log p(y); float32 can represent p(y) down to exp(-87).
            log_probs = probs.gather(1, targets).clamp_min_(torch.finfo(torch.float32).tiny).log_()
            total += (smoothing * target_logits - log_probs).sum()
            if x_gradient is not None and w_gradient is not None:
                probs.scatter_add_(1, targets, torch.full_like(target_logits, smoothing - 1))
                logit_gradient = product_rows(probs, options.dtype)
                x_gradient[start : start + n_rows] = (logit_gradient @ w)[: len(targets)]
                _add_product(w_gradient, logit_gradient.T, rows)
        if x_gradient is not None and w_gradient is not None:
            x_gradient -= uniform * w_sum
            w_gradient -= uniform * x.sum(dim=0)
            ctx.save_for_backward(x_gradient, w_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x_gradient, w_gradient = ctx.saved_tensors
        [scale] = gradients
        return x_gradient.mul_(scale), w_gradient.mul_(scale), None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a @ b` to `total`, without a temporary matrix if the dtypes match."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


@torch.inference_mode()
def total_loss(model: TrainableModel[Any], batches: Iterable[Batch]) -> tuple[float, int]:
    """Return the summed loss in nats, without smoothing or dropout, and the target token count."""
    device = next(model.parameters()).device
    model.eval()
    total, n_target_tokens = 0.0, 0
    for batch in (batch.to(device) for batch in batches):
        hidden, _ = model.decode_hidden(batch.target_in, model.encode(batch.source))
        total += summed_loss(hidden, model.output_weight, batch.labels, 0.0).item()
        n_target_tokens += batch.n_target_tokens
    return total, n_target_tokens

"""Label-smoothed cross-entropy that never holds the logits of a whole batch.

The projection to the vocabulary is the largest matrix of a step: a few thousand rows of several
thousand numbers each, which the usual way keeps three times. Here it is made, used for the loss
and for the gradients, and forgotten, a few hundred rows at a time.
"""

from typing import Any

import torch
from torch import Tensor

from mtcli.feed import IGNORED

_CHUNK = 2**22  # logits that are there at once


def summed_loss(vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy of `vectors` [B, T, D] with `labels` [B, T], summed over the words.

    `weight` [V, D] makes the logits. A sum, so that batches of any size add up fairly.
    """
    is_word = labels != IGNORED
    rows, wanted = vectors[is_word], labels[is_word]  # [N, D], [N]
    loss: Tensor = _ChunkedCrossEntropy.apply(
        rows, weight, wanted, smoothing, torch.is_grad_enabled()
    )  # type: ignore[no-untyped-call]
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes its gradients on the way forward, where the logits are at hand.

    With smoothing e the loss of a row with logits z and label y is
        logsumexp(z) - (1 - e) z_y - e mean(z),
    and its gradient softmax(z) - (1 - e) onehot(y) - e / V. The last term is the same for all
    entries of the vocabulary, so it needs no pass over the logits: the sums over rows of `weight`
    and of `x` give it.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, has_gradients: bool
    ) -> Tensor:
        w = weight.to(x.dtype)
        share = smoothing / len(w)
        row_sum = w.sum(dim=0)  # [D]
        total = -share * (x @ row_sum).sum(dtype=torch.float32)
        x_gradient = torch.empty_like(x) if has_gradients else None
        w_gradient = torch.zeros_like(weight) if has_gradients else None
        n_rows = max(1, _CHUNK // len(w))
        for start in range(0, len(x), n_rows):
            rows, wanted = x[start : start + n_rows], labels[start : start + n_rows, None]
            logits = (rows @ w.T).float()  # [N, V]
            at_label = logits.gather(1, wanted)
            # In place: the logits themselves are not needed again.
            probs = torch.softmax(logits, dim=1, out=logits)
            # logsumexp(z) is z_y less the log-probability of y, which float32 can hold down to -87.
            log_probs = probs.gather(1, wanted).clamp_min_(torch.finfo(torch.float32).tiny).log_()
            total += (smoothing * at_label - log_probs).sum()
            if x_gradient is not None and w_gradient is not None:
                probs.scatter_add_(1, wanted, torch.full_like(at_label, smoothing - 1))
                push = probs.to(x.dtype)
                x_gradient[start : start + n_rows] = push @ w
                _add_product(w_gradient, push.T, rows)
        if x_gradient is not None and w_gradient is not None:
            x_gradient -= share * row_sum
            w_gradient -= share * x.sum(dim=0)
            ctx.save_for_backward(x_gradient, w_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x_gradient, w_gradient = ctx.saved_tensors
        [scale] = gradients
        return x_gradient.mul_(scale), w_gradient.mul_(scale), None, None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, in one go where the types allow it."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b

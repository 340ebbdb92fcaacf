"""Decoder-only transformer: a language model that continues the source with the target."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.transformers import DecoderOnlyConfig
from mtcli.models.attention import KeyValueCache
from mtcli.models.base import LossTerm, State
from mtcli.models.layers import (
    DeepNormScales,
    EmbeddedModel,
    TransformerLayer,
    build_final_norm,
    module_list,
)
from mtcli.models.masks import AttentionMask
from mtcli.models.positions import build_added_positions
from mtcli.models.recording import AttentionRecorder, AttentionWeights
from mtcli.tokenizer import IGNORE_INDEX


@dataclass(frozen=True)
class PrefixState(State):
    """Key-value cache of the source and the target.

    The source is padded on the left. The source and target tokens of a row are therefore adjacent,
    and padding does not change the distance between two tokens.
    """

    is_token: Tensor  # [B, S], False for padding; S includes the decoded target
    n_padding: Tensor  # [B, 1]
    cache: tuple[KeyValueCache, ...] = ()  # per layer; empty before the source is encoded
    source_hidden: Tensor | None = None  # [B, S, D], only if the loss includes source tokens


class DecoderOnly(EmbeddedModel[PrefixState]):
    """Decoder-only transformer with one stack for source and target."""

    def __init__(self, config: DecoderOnlyConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        self.positions = build_added_positions(config)
        scales = _deep_norm_scales(config)
        self.layers = module_list(TransformerLayer(config, scales) for _ in range(config.n_layers))
        self.norm = build_final_norm(config)
        self._build_output(config, target_size)

    def encode(self, source: Tensor, recorder: AttentionRecorder | None = None) -> PrefixState:
        """Run the stack over padded source ids [B, S] (prefill); return the state after them."""
        source = _pad_left(source, self.special.pad)
        is_token, n, device = source != self.special.pad, source.size(1), source.device
        n_padding = n - is_token.sum(dim=1, keepdim=True)
        is_causal = self.config.source_attention == "causal"
        mask = AttentionMask(n, n, device, is_token, is_causal=is_causal, window=self.config.window)
        positions = torch.arange(n, device=device) - n_padding  # [B, S]
        x = self.dropout(self.positions(self.source_embedding(source), positions))
        x, state = self._run_layers(x, PrefixState(is_token, n_padding), mask, recorder)
        return replace(state, source_hidden=x) if self.config.loss_on == "both" else state

    def decode_hidden(
        self, target: Tensor, state: PrefixState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, PrefixState]:
        """Decode the next target ids [B, T]; return hidden states [B, T, D] and the new state."""
        x, state, mask = self._embed_target(target, state)
        return self._run_layers(x, state, mask, recorder)

    def loss_terms(self, source: Tensor, target: Tensor, labels: Tensor) -> list[LossTerm]:
        """Return the target loss term and, if `config.loss_on` is "both", the source loss term."""
        state = self.encode(source)
        hidden, _ = self.decode_hidden(target, state)
        if state.source_hidden is None:
            return [(hidden, labels)]
        # The first source token has no context, so it has no loss.
        source = _pad_left(source, self.special.pad)
        source_labels = source[:, 1:].masked_fill(source[:, :-1] == self.special.pad, IGNORE_INDEX)
        return [(hidden, labels), (state.source_hidden[:, :-1], source_labels)]

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the target-to-source attention [B, T, S], averaged over the alignment heads.

        Attention to target tokens is removed, and the remaining weights are renormalized.
        """
        choice = self._alignment_heads()
        attention = self.layers[choice.layer].self_attention
        recorder, state = AttentionRecorder([attention]), self.encode(source)
        self.decode_hidden(target, state, recorder)
        weights = recorder[attention][:, list(choice.heads), :, : source.size(1)].mean(dim=1)
        total = weights.sum(dim=-1, keepdim=True)
        # The total is 0 if the attention window does not reach the source.
        weights = torch.where(total > 0, weights / total, 0.0)
        return _move_padding_right(weights, state.n_padding, dim=-1)

    def attention_weights(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the teacher-forced attention weights of all layers and heads."""
        layers, n_source = [layer.self_attention for layer in self.layers], source.size(1)
        on_source, on_target = AttentionRecorder(layers), AttentionRecorder(layers)
        state = self.encode(source, on_source)
        self.decode_hidden(target, state, on_target)
        encoder = _move_padding_right(on_source.stack(layers), state.n_padding, dim=-1)
        to_source, to_target = on_target.stack(layers).tensor_split([n_source], dim=-1)
        to_source = _move_padding_right(to_source, state.n_padding, dim=-1)
        return AttentionWeights(
            encoder=_move_padding_right(encoder, state.n_padding, dim=-2),
            decoder=torch.cat([to_source, to_target], dim=-1),
            alignment=self._alignment_heads(),
        )

    def _alignment_heads(self) -> AlignmentHeads:
        return self.alignment_heads or self.config.default_alignment_heads

    def _embed_target(
        self, target: Tensor, state: PrefixState
    ) -> tuple[Tensor, PrefixState, AttentionMask]:
        """Return the embeddings [B, T, D] of new target ids, the extended state and the mask."""
        n_new, start = target.size(1), state.is_token.size(1)
        is_token = torch.cat([state.is_token, torch.ones_like(target, dtype=torch.bool)], dim=1)
        positions = torch.arange(start, start + n_new, device=target.device) - state.n_padding
        x = self.dropout(self.positions(self.target_embedding(target), positions))
        mask = AttentionMask(
            n_queries=n_new,
            n_keys=start + n_new,
            device=target.device,
            is_token=is_token,
            start=start,
            is_causal=True,
            window=self.config.window,
        )
        return x, replace(state, is_token=is_token), mask

    def _run_layers(
        self,
        x: Tensor,
        state: PrefixState,
        mask: AttentionMask,
        recorder: AttentionRecorder | None,
    ) -> tuple[Tensor, PrefixState]:
        caches = []
        for i, layer in enumerate(self.layers):
            x, cache = layer(x, state.cache[i] if state.cache else None, mask, recorder)
            caches.append(cache)
        return self.norm(x), replace(state, cache=tuple(caches))


def _pad_left(source: Tensor, pad_id: int) -> Tensor:
    """Return the rows [B, S] with their padding moved from the right to the left."""
    n = source.size(1)
    n_padding = (source == pad_id).sum(dim=1, keepdim=True)
    columns = torch.arange(n, device=source.device) - n_padding  # [B, S]
    return source.gather(1, columns % n)


def _move_padding_right(weights: Tensor, n_padding: Tensor, *, dim: int) -> Tensor:
    """Return attention weights with the padding moved from the left to the right along `dim`."""
    n = weights.size(dim)
    positions = (torch.arange(n, device=weights.device) + n_padding) % n  # [B, S]
    shape = [1] * weights.ndim
    shape[0], shape[dim] = positions.shape
    return weights.gather(dim, positions.view(shape).expand_as(weights))


def _deep_norm_scales(config: DecoderOnlyConfig) -> DeepNormScales:
    if not config.deep_norm:
        return DeepNormScales()
    return DeepNormScales(config.residual_scale, (8 * config.n_layers) ** -0.25)

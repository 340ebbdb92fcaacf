"""Encoder-decoder transformer ("Attention is all you need", Vaswani et al. 2017)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.transformers import TransformerConfig
from mtcli.models.attention import Attention, KeyValueCache, KeyValues
from mtcli.models.base import State
from mtcli.models.layers import (
    DeepNormScales,
    EmbeddedModel,
    FeedForward,
    Residual,
    SelfAttentionLayer,
    TransformerLayer,
    build_final_norm,
    module_list,
)
from mtcli.models.masks import AttentionMask
from mtcli.models.positions import DotProductAttention, build_added_positions
from mtcli.models.recording import AttentionRecorder, AttentionWeights


@dataclass(frozen=True)
class TransformerState(State):
    """Encoded source and cached target."""

    memory: tuple[KeyValues, ...]  # source keys and values per decoder layer, [B, K, S, E]
    is_token: Tensor  # [B, S], False for source padding
    cache: tuple[KeyValueCache, ...] = ()  # per decoder layer; empty before the first step

    @property
    def n_decoded(self) -> int:
        """Number of target positions in the cache."""
        return self.cache[0].length if self.cache else 0

    def reorder(self, rows: Tensor) -> "TransformerState":
        """Return the state with reordered caches; all rows of a sentence share the rest."""
        return replace(self, cache=tuple(cache.select(rows) for cache in self.cache))


@dataclass(frozen=True)
class DecoderMasks:
    """Masks for self-attention (target) and cross-attention (source)."""

    target: AttentionMask
    source: AttentionMask


class DecoderLayer(SelfAttentionLayer):
    """Causal self-attention, cross-attention to the source, and a feed-forward network."""

    def __init__(self, config: TransformerConfig, scales: DeepNormScales) -> None:
        super().__init__(config, scales)
        self.cross_attention = Attention(config, DotProductAttention())
        self.cross_residual = Residual(config, scales)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config, scales)

    def forward(
        self,
        x: Tensor,
        cache: KeyValueCache | None,
        memory: KeyValues,
        masks: DecoderMasks,
        recorder: AttentionRecorder | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Transform new positions `x` [B, T, D]; return them and the extended cache."""
        x, cache = self.self_attend(x, cache, masks.target, recorder)
        y = self.cross_residual.sublayer_input(x)
        y = self.cross_attention(y, memory, masks.source, recorder)
        x = self.cross_residual.add_output(x, y)
        return self.feed_forward_residual.run(x, self.feed_forward), cache


class Transformer(EmbeddedModel[TransformerState]):
    """Encoder-decoder transformer."""

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        self.source_positions = build_added_positions(config)
        self.target_positions = build_added_positions(config)
        encoder_scales, decoder_scales = _deep_norm_scales(config)
        self.encoder = module_list(
            TransformerLayer(config, encoder_scales) for _ in range(config.n_encoder_layers)
        )
        self.decoder = module_list(
            DecoderLayer(config, decoder_scales) for _ in range(config.n_decoder_layers)
        )
        self.encoder_norm = build_final_norm(config)
        self.decoder_norm = build_final_norm(config)
        self._build_output(config, target_size)

    def encode(self, source: Tensor, recorder: AttentionRecorder | None = None) -> TransformerState:
        """Encode padded source ids [B, S]; return the state before the first target token."""
        is_token, n, device = source != self.special.pad, source.size(1), source.device
        mask = AttentionMask(n, n, device, is_token, window=self.config.window)
        positions = torch.arange(n, device=device)
        x = self.source_positions(self.source_embedding(source), positions)  # [B, S, D]
        x = self.dropout(x)
        for layer in self.encoder:
            x, _ = layer(x, None, mask, recorder)
        x = self.encoder_norm(x)
        memory = tuple(layer.cross_attention.key_values(x) for layer in self.decoder)
        return TransformerState(memory, is_token)

    def decode_hidden(
        self, target: Tensor, state: TransformerState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, TransformerState]:
        """Decode the next target ids [B, T]; return hidden states [B, T, D] and the new state."""
        x, masks = self._embed_target(target, state)
        caches = []
        for i, layer in enumerate(self.decoder):
            cache = state.cache[i] if state.cache else None
            x, cache = layer(x, cache, state.memory[i], masks, recorder)
            caches.append(cache)
        return self.decoder_norm(x), replace(state, cache=tuple(caches))

    def alignment(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the cross-attention [B, T, S], averaged over the alignment heads."""
        choice = self._alignment_heads()
        attention = self.decoder[choice.layer].cross_attention
        recorder = AttentionRecorder([attention])
        self.decode_hidden(target, self.encode(source), recorder)
        return recorder[attention][:, list(choice.heads)].mean(dim=1)

    def attention_weights(self, source: Tensor, target: Tensor) -> AttentionWeights:
        """Return the teacher-forced attention weights of all layers and heads."""
        encoder = [layer.self_attention for layer in self.encoder]
        decoder = [layer.self_attention for layer in self.decoder]
        cross = [layer.cross_attention for layer in self.decoder]
        recorder = AttentionRecorder([*encoder, *decoder, *cross])
        self.decode_hidden(target, self.encode(source, recorder), recorder)
        return AttentionWeights(
            encoder=recorder.stack(encoder),
            decoder=recorder.stack(decoder),
            cross=recorder.stack(cross),
            alignment=self._alignment_heads(),
        )

    def _alignment_heads(self) -> AlignmentHeads:
        return self.alignment_heads or self.config.default_alignment_heads

    def _embed_target(self, target: Tensor, state: TransformerState) -> tuple[Tensor, DecoderMasks]:
        """Return the embeddings [B, T, D] of new target ids, and their masks."""
        n_new, start, device = target.size(1), state.n_decoded, target.device
        positions = torch.arange(start, start + n_new, device=device)
        x = self.dropout(self.target_positions(self.target_embedding(target), positions))
        target_mask = AttentionMask(
            n_new, start + n_new, device, start=start, is_causal=True, window=self.config.window
        )
        source_mask = AttentionMask(n_new, state.is_token.size(1), device, state.is_token)
        return x, DecoderMasks(target_mask, source_mask)


def _deep_norm_scales(config: TransformerConfig) -> tuple[DeepNormScales, DeepNormScales]:
    """Return the scales of the encoder and the decoder (Wang et al. 2022, encoder-decoder case)."""
    if not config.deep_norm:
        return DeepNormScales(), DeepNormScales()
    n, m = config.n_encoder_layers, config.n_decoder_layers
    gains = 0.87 / (n**4 * m) ** (1 / 16), (12 * m) ** -0.25
    encoder, decoder = map(DeepNormScales, config.residual_scales, gains)
    return encoder, decoder

"""Model directories with weights set by hand, so that every output is known.

The best piece has such a large margin over the others that neither the CPU nor quantization
changes an output.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from mtcli.config.load import load_config
from mtcli.config.sections import Config
from mtcli.files import write_file
from mtcli.model_dir.directory import WeightsInfo, save_config
from mtcli.model_dir.weights import save_weights
from mtcli.models import build_model
from mtcli.models.base import parameters_of
from mtcli.models.transformer import Transformer
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, Tokenizers

_NEVER = -40.0  # logit of the pieces that must not be output
_PIECES, _POSITIONS, _EOS_FLAG = slice(0, 48), slice(48, 176), slice(176, 192)  # parts of a vector
_MAX_POSITIONS = 127
_WIDTH = 192
_SETTINGS = {
    "data.train": ["train.en", "train.de"],
    "data.max_length": 32,
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": 340,
    "search.max_length": 32,
    "train.device": "cpu",
    "model.n_heads": 1,
    "model.n_encoder_layers": 1,
    "model.n_decoder_layers": 1,
    "model.d_feed_forward": 32,
    "model.tied_embeddings": "none",
}


def make_unigram_model(
    directory: Path, tokenizers: Tokenizers, logits: Mapping[str, float]
) -> Path:
    """Write a model whose next piece does not depend on the source or the history.

    `logits` maps pieces to their logits; all other pieces are practically impossible.
    """
    model = _zero_model({"model.d_model": 16}, tokenizers)
    nn.init.zeros_(model.decoder_norm.weight)
    model.decoder_norm.bias[0] = 1.0
    model.to_logits.weight[:, 0] = _NEVER
    for piece, logit in logits.items():
        assert piece in tokenizers.target.vocabulary
        model.to_logits.weight[tokenizers.target.pieces_to_ids([piece]), 0] = logit
    return _save(directory, model, {"model.d_model": 16}, tokenizers)


def make_copying_model(directory: Path, tokenizers: Tokenizers) -> Path:
    """Write a model that outputs its source.

    Each target position attends to the same source position, or to the source EOS if the source is
    shorter. The alignment is therefore known, too.
    """
    settings = {
        "model.d_model": _WIDTH,
        "model.positions": "learned",
        "model.max_positions": _MAX_POSITIONS,
    }
    model = _zero_model(settings, tokenizers)
    pieces = _piece_codes(len(tokenizers.source))
    source = model.source_embedding
    source.weight[:, _PIECES] = pieces / source.scale
    source.weight[:, _EOS_FLAG] = _interleave_negated(torch.full((8,), -1 / source.scale))
    source.weight[DEFAULT_SPECIAL_IDS.eos, _EOS_FLAG] *= -1
    codes = _hadamard(128)[1:]
    for positions in (model.source_positions, model.target_positions):
        positions.vectors.weight[:, _POSITIONS] = codes
    attention = model.decoder[0].cross_attention
    for linear in (attention.to_queries, attention.to_keys):
        linear.weight[_POSITIONS, _POSITIONS] = torch.eye(128)
    attention.to_queries.weight *= 10
    # The attention score of EOS is half that of a matching position.
    attention.to_queries.bias[_EOS_FLAG] = _interleave_negated(torch.full((8,), 40.0))
    attention.to_keys.weight[_EOS_FLAG, _EOS_FLAG] = torch.eye(16)
    attention.to_values.weight[_PIECES, _PIECES] = torch.eye(48)
    attention.to_output.weight[_PIECES, _PIECES] = 10 * torch.eye(48)
    model.to_logits.weight[:, _PIECES] = pieces
    return _save(directory, model, settings, tokenizers)


def _piece_codes(size: int) -> Tensor:
    """Return a matrix [V, 48] of ±1; any two rows differ in at least a sixth of their entries.

    Each entry is followed by its negation, so the mean is zero and int8 sums do not saturate.
    """
    rows, ids = _hadamard(8), torch.arange(size)
    return _interleave_negated(
        torch.cat([rows[ids // 64], rows[ids // 8 % 8], rows[ids % 8]], dim=1)
    )


def _interleave_negated(x: Tensor) -> Tensor:
    return torch.stack([x, -x], dim=-1).flatten(-2)


def _hadamard(size: int) -> Tensor:
    """Return a matrix of ±1 with orthogonal rows."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def _config(settings: Mapping[str, object]) -> Config:
    return load_config(None, [*_SETTINGS.items(), *settings.items()])


def _zero_model(settings: Mapping[str, object], tokenizers: Tokenizers) -> Transformer:
    """Return a model with default norms and all other weights zero."""
    model = build_model(
        _config(settings).model, len(tokenizers.source), len(tokenizers.target)
    ).requires_grad_(False)
    for module in model.modules():
        if not isinstance(module, nn.LayerNorm):
            for parameter in module.parameters(recurse=False):
                nn.init.zeros_(parameter)
    return model


def _save(
    directory: Path, model: Transformer, settings: Mapping[str, object], tokenizers: Tokenizers
) -> Path:
    save_config(directory, _config(settings))
    for name, content in tokenizers.files().items():
        write_file(directory / name, content)
    info = WeightsInfo(n_parameters=0, step=1, bleu=0.0, signature="", n_pairs=1)
    save_weights(directory, parameters_of(model), info)
    return directory

"""Hugging Face worker for benchmarks/train.py: train for the number of steps in each stdin line.

The model is a MarianMT with random weights. The loss (LabelSmoother) and the optimizer (fused AdamW
with gradient clipping) are those of the Trainer. Batches have 128 pairs, sampled at random or
grouped by length with LengthGroupedSampler.
"""

import sys

import numpy as np
import torch
from answering import answer
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother, LengthGroupedSampler

BATCH_SIZE = 128
PAD = 0


def main() -> None:
    """Train on the ids in the file argv[1]; argv[2] is the kind of batches."""
    arrays = np.load(sys.argv[1])
    sources, targets = (
        split(arrays[side], arrays[f"{side}_starts"]) for side in ("source", "target")
    )
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = MarianMTModel(model_config(int(arrays["vocab_size"]))).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), fused=True)
    smoother = LabelSmoother(epsilon=0.1)
    batches = endless_batches(sources, sys.argv[2])

    def train(n_steps):
        n_tokens, n_positions = 0, 0
        for _ in range(n_steps):
            batch = next(batches)
            source = pad([sources[i] for i in batch], PAD)
            labels = pad([targets[i] for i in batch], -100)
            outputs = model(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
            )
            loss = smoother(outputs, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            n_tokens += int((source != PAD).sum()) + int((labels != -100).sum())
            n_positions += source.numel() + labels.numel()
        return n_tokens, n_positions, loss.item()

    answer(train)


def model_config(vocab_size):
    """Return the architecture that all programs train."""
    return MarianConfig(
        vocab_size=vocab_size,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        max_position_embeddings=256,
        pad_token_id=PAD,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=3,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        scale_embedding=True,
    )


def split(flat, starts):
    """Split a flat array into its rows."""
    return [flat[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]


def endless_batches(sources, kind):
    """Yield batches of row numbers, epoch after epoch."""
    generator = torch.Generator().manual_seed(1)
    while True:
        if kind == "grouped":
            lengths = [len(source) for source in sources]
            rows = list(LengthGroupedSampler(BATCH_SIZE, lengths=lengths, generator=generator))
        else:
            rows = torch.randperm(len(sources), generator=generator).tolist()
        for start in range(0, len(rows) - BATCH_SIZE + 1, BATCH_SIZE):
            yield rows[start : start + BATCH_SIZE]


def pad(rows, filler):
    """Return the padded rows as a tensor [B, S]."""
    width = max(map(len, rows))
    array = np.full((len(rows), width), filler, dtype=np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return torch.from_numpy(array)


if __name__ == "__main__":
    main()

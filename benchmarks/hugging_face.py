"""Translate with Hugging Face transformers, using the weights of an mtcli model.

Lines are sorted by length and translated in batches with `generate`. M2M100 has the same layers as
mtcli's pre-norm transformer, and its position tables are replaced with mtcli's.

python benchmarks/hugging_face.py MODEL SOURCE TARGET BEAM_SIZE
(in an environment with torch, transformers, sentencepiece, safetensors and pyyaml)
"""

import sys
from pathlib import Path

import sentencepiece
import torch
import yaml
from safetensors.torch import load_file
from transformers import M2M100Config, M2M100ForConditionalGeneration

PAD, BOS, EOS = 0, 2, 3
BATCH_SIZE = 32
LAYER_NAMES = {  # from mtcli to M2M100
    "self_attention.to_queries": "self_attn.q_proj",
    "self_attention.to_keys": "self_attn.k_proj",
    "self_attention.to_values": "self_attn.v_proj",
    "self_attention.to_output": "self_attn.out_proj",
    "self_residual.norm": "self_attn_layer_norm",
    "cross_attention.to_queries": "encoder_attn.q_proj",
    "cross_attention.to_keys": "encoder_attn.k_proj",
    "cross_attention.to_values": "encoder_attn.v_proj",
    "cross_attention.to_output": "encoder_attn.out_proj",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.to_inner": "fc1",
    "feed_forward.to_output": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def load(directory: Path) -> M2M100ForConditionalGeneration:
    """Return the model in a directory written by `mtcli train`."""
    config = yaml.safe_load((directory / "config.yaml").read_text())["model"]
    assert config["norm"] == "pre", "M2M100 is pre-norm"
    assert config["positions"] == "sinusoidal"
    assert config["tied_embeddings"] == "all"
    tensors = load_file(directory / "model.safetensors")
    vocab_size, width = tensors["source_embedding.weight"].shape
    model = M2M100ForConditionalGeneration(
        M2M100Config(
            vocab_size=vocab_size,
            d_model=width,
            encoder_layers=config["n_encoder_layers"],
            decoder_layers=config["n_decoder_layers"],
            encoder_attention_heads=config["n_heads"],
            decoder_attention_heads=config["n_heads"],
            encoder_ffn_dim=config["d_feed_forward"],
            decoder_ffn_dim=config["d_feed_forward"],
            activation_function=config["activation"],
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            max_position_embeddings=600,
        )
    )
    state = model.state_dict()
    for name, tensor in tensors.items():
        if name == "source_embedding.weight":
            for embedding in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"):
                state[f"model.{embedding}.weight"] = tensor
            state["lm_head.weight"] = tensor
            continue
        part, _, rest = name.partition(".")
        if part in ("encoder_norm", "decoder_norm"):
            state[f"model.{part.removesuffix('_norm')}.layer_norm.{rest}"] = tensor
            continue
        number, _, rest = rest.partition(".")
        layer, _, kind = rest.rpartition(".")
        state[f"model.{part}.layers.{number}.{LAYER_NAMES[layer]}.{kind}"] = tensor
    model.load_state_dict(state)
    for stack in (model.model.encoder, model.model.decoder):
        table = stack.embed_positions.weights
        # The first position of M2M100 is PAD + 1.
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(len(table) - PAD - 1)[:, None] * frequencies
        table[PAD + 1 :] = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return model.eval()


def main() -> None:
    """Translate SOURCE to TARGET."""
    directory, source, target, beam_size = map(Path, sys.argv[1:])
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    model = load(directory)
    lines = source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    ids = [[*row, EOS] for row in tokenizer.encode(lines)]
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    translations: dict[int, str] = {}
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        longest = len(ids[rows[0]])
        batch = torch.tensor([ids[i] + [PAD] * (longest - len(ids[i])) for i in rows])
        with torch.inference_mode():
            output = model.generate(
                input_ids=batch,
                attention_mask=(batch != PAD).long(),
                num_beams=int(str(beam_size)),
                max_new_tokens=256,
                length_penalty=1.0,
                early_stopping=True,
                do_sample=False,
            )
        for i, row in zip(rows, output.tolist(), strict=True):
            tokens = row[1 : row.index(EOS, 1) if EOS in row[1:] else None]
            translations[i] = tokenizer.decode([token for token in tokens if token != PAD])
    target.write_text("".join(f"{translations[i]}\n" for i in range(len(lines))), encoding="utf-8")


main()

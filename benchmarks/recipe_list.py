"""Recipes for recipes.py: settings by dotted key."""

# Defaults of all recipes: a model that mtcli 0.2 planned for Multi30k with 30 minutes.
BASE = {
    "tokenizer.vocab_size": 4000,
    "model.d_model": 192,
    "model.n_heads": 6,
    "model.d_feed_forward": 768,
    "model.n_encoder_layers": 4,
    "model.n_decoder_layers": 3,
    "model.dropout": 0.2,
    "data.batch_tokens": 4096,
    "train.warmup": 100,
    "train.validate_pairs": 200,
}
MODERN = {"model.norm_kind": "rms", "model.biases": False, "train.ema": 0.995}
RELATIVE = {**MODERN, "model.positions": "relative"}

RECIPES = {
    "base": {},
    "relative": RELATIVE,
    "rotary": {**MODERN, "model.positions": "rotary"},
    "relative-160": {
        **RELATIVE,
        "tokenizer.vocab_size": 3000,
        "model.d_model": 160,
        "model.n_heads": 5,
        "model.d_feed_forward": 640,
        "data.batch_tokens": 3072,
    },
    "layer-norm": {"model.positions": "relative", "train.ema": 0.995},
    "biases": {**RELATIVE, "model.biases": True},
    "batch-2048": {**RELATIVE, "data.batch_tokens": 2048},
    "vocabulary-2000": {**RELATIVE, "tokenizer.vocab_size": 2000},
    "shallow-decoder": {**RELATIVE, "model.n_encoder_layers": 6, "model.n_decoder_layers": 2},
    "rate-0.03": {**RELATIVE, "train.matrix_learning_rate": 0.03},
    "rate-0.012": {**RELATIVE, "train.matrix_learning_rate": 0.012},
    "adamw-rate-0.008": {**RELATIVE, "train.learning_rate": 0.008},
    "sampling": {**RELATIVE, "data.subword_sampling": 0.3},
    "bpe": {**RELATIVE, "tokenizer.kind": "bpe"},
}

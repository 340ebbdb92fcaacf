"""Train, translate and evaluate on the command line, with several configurations."""

import sys

import pytest
from typer.testing import CliRunner

from mtcli.cli.base import app
from processes import output_of

pytestmark = pytest.mark.cpu

ROWS = {
    "defaults": [],
    "post-norm, adamw, inverse_sqrt, separate vocabularies": [
        "model.norm=post",
        "train.optimizer=adamw",
        "train.schedule=inverse_sqrt",
        "tokenizer.is_shared=false",
        "tokenizer.vocab_size=300",
        "model.tied_embeddings=target",
    ],
    "learned positions, gelu, accumulation, all dropouts, patience": [
        "model.positions=learned",
        "model.max_positions=256",
        "model.activation=gelu",
        "search.max_length=64",
        "train.accumulate=3",
        "model.attention_dropout=0.1",
        "model.activation_dropout=0.1",
        "train.patience=1",
    ],
    "unigram, untied embeddings, swish": [
        "tokenizer.kind=unigram",
        "tokenizer.normalization=identity",
        "model.tied_embeddings=none",
        "model.activation=swish",
    ],
    "subword sampling, word dropout, averaging, cosine, chrF": [
        "data.subword_sampling=0.1",
        "data.word_dropout=0.1",
        "train.average=2",
        "train.ema=0.9",
        "train.schedule=cosine",
        "train.final_rate=0.1",
        "train.metric=chrf",
    ],
    "recurrent": ["model={arch: rnn, d_model: 16}"],
    "decoder-only": [
        "model={arch: decoder_only, d_model: 16, n_heads: 2, n_layers: 2, d_feed_forward: 32}",
        "model.source_attention=causal",
        "model.loss_on=both",
    ],
    "local window, relative positions, gated, multi-query": [
        "model.window=3",
        "model.positions=relative",
        "model.gated=true",
        "model.n_kv_heads=1",
        "model.norm_kind=rms",
    ],
}


def mtcli_in_process(*arguments, stdin: str | None = None) -> str:
    """Run a command in this process, to avoid importing torch again."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def mtcli(*arguments, stdin: str | None = None) -> str:
    return output_of([sys.executable, "-m", "mtcli", *arguments], stdin=stdin)


@pytest.mark.parametrize("row", ROWS)
def test_a_trained_model_translates_and_can_be_moved(corpus_files, tmp_path, tiny_options, row):
    source, target = corpus_files
    settings = [part for setting in ROWS[row] for part in ("--set", setting)]
    mtcli_in_process("train", source, target, "--out", tmp_path / "model", *tiny_options, *settings)
    text = source.read_text(encoding="utf-8")
    translations = mtcli_in_process("translate", tmp_path / "model", stdin=text)
    assert translations.count("\n") == text.count("\n")
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / "model").rename(tmp_path / "moved" / "elsewhere")
    assert mtcli_in_process("evaluate", moved, source, target).startswith("BLEU ")


@pytest.mark.long
def test_a_small_language_can_be_learned(corpus_files, tmp_path, tiny_options):
    """Train on sixty sentences built from twelve phrases; four seeds reached BLEU 93 or more."""
    source, target = corpus_files
    changes = ["model.d_model=32", "train.steps=300", "train.validate_every=150", "model.dropout=0"]
    settings = [part for setting in changes for part in ("--set", setting)]
    mtcli("train", source, target, "--out", tmp_path / "model", *tiny_options, *settings)
    text = source.read_text(encoding="utf-8")
    translations = mtcli("translate", tmp_path / "model", stdin=text)
    assert translations.count("\n") == 60
    score = mtcli("evaluate", tmp_path / "model", source, target).split()[1]
    assert float(score) > 75

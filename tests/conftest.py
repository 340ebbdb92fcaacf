"""Fixtures: a corpus of sixty pairs, its tokenizer, and small models.

Only the models from `handmade` have a known output. The output of `tiny_trained` and `trained`
depends on the CPU: use them only to test files, counts and messages, or to compare two computations
of the same result.
"""

import faulthandler
import fcntl
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from browser import browser, open_page  # noqa: F401
from handmade import make_copying_model, make_unigram_model
from mtcli.config.load import load_config
from mtcli.config.rnn import RnnConfig
from mtcli.config.sections import Config
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.config.transformers import DecoderOnlyConfig, TransformerConfig
from mtcli.data.corpus import Corpus
from mtcli.tokenizer import Tokenizers, train_tokenizers
from mtcli.training.run import train_run

settings.register_profile("mtcli", deadline=None)  # tests must not depend on the speed of a CPU
settings.load_profile("mtcli")
# Tests send SIGINT, which background jobs of a shell script ignore by default.
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for processes that tests start

_HARD_LIMIT = 900  # seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """End the process if a test hangs in code that pytest-timeout cannot interrupt."""
    faulthandler.dump_traceback_later(_HARD_LIMIT, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


WORDS = {
    "the man": "der Mann",
    "the woman": "die Frau",
    "a child": "ein Kind",
    "my dog": "mein Hund",
    "sees": "sieht",
    "likes": "mag",
    "finds": "findet",
    "the house": "das Haus",
    "the tree": "den Baum",
    "a book": "ein Buch",
    "bread": "Brot",
    "water": "Wasser",
}


def tiny_pairs() -> list[tuple[str, str]]:
    words = list(WORDS)
    english = itertools.product(words[:4], words[4:7], words[7:])
    return [(" ".join(line), " ".join(WORDS[word] for word in line)) for line in english]


def shipped_config(name: str) -> Config:
    return load_config(Path(__file__).parent.parent / "configs" / f"{name}.yaml")


TINY_MODEL = {"d_model": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}


def tiny_model_config(**changes) -> TransformerConfig:
    return TransformerConfig(**{**TINY_MODEL, "d_feed_forward": 32, **changes})


def tiny_decoder_only(**changes) -> DecoderOnlyConfig:
    size = {"d_model": 16, "n_heads": 2, "n_layers": 3, "d_feed_forward": 32}
    return DecoderOnlyConfig(arch="decoder_only", **{**size, **changes})


def tiny_rnn_config(**changes) -> RnnConfig:
    return RnnConfig(**{"arch": "rnn", "d_model": 16, **changes})


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    sources, targets = zip(*tiny_pairs(), strict=True)
    return Corpus(list(sources), list(targets))


@pytest.fixture(scope="session")
def tokenizers(corpus: Corpus) -> Tokenizers:
    options = TokenizerConfig(kind="bpe", vocab_size=340)
    return train_tokenizers(corpus.source, corpus.target, options)


@pytest.fixture
def corpus_files(tmp_path: Path, corpus: Corpus) -> tuple[Path, Path]:
    files = tmp_path / "train.en", tmp_path / "train.de"
    for path, lines in zip(files, (corpus.source, corpus.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


TINY_SETTINGS = {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": 340,
    "train.precision": "float32",  # the same on every CPU
    **{f"model.{key}": value for key, value in TINY_MODEL.items()},
    "model.d_feed_forward": 32,
    "data.batch_tokens": 256,
    "data.max_length": 32,
    "train.steps": 12,
    "train.warmup": 2,
    "train.validate_every": 4,
    "train.device": "cpu",
    "search.max_length": 32,
}


@pytest.fixture
def tiny_config(corpus_files: tuple[Path, Path]) -> Config:
    return load_config(None, [("data.train", list(corpus_files)), *TINY_SETTINGS.items()])


@pytest.fixture
def tiny_options() -> list[str]:
    """Return the settings of `tiny_config` as command-line options."""
    return [part for key, value in TINY_SETTINGS.items() for part in ("--set", f"{key}={value}")]


DEMO = Path(__file__).parent.parent / "data" / "demo"
SMALL = {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": 1000,
    "train.precision": "float32",
    "model.d_model": 64,
    "model.n_heads": 4,
    "model.n_encoder_layers": 2,
    "model.n_decoder_layers": 2,
    "model.d_feed_forward": 128,
    "model.dropout": 0,
    "data.batch_tokens": 2000,
    "data.max_length": 48,
    "train.steps": 250,
    "train.warmup": 20,
    "train.validate_every": 250,
    "train.validate_pairs": 100,
    "train.device": "cpu",
    "search.max_length": 64,
}


@pytest.fixture(scope="session")
def test_lines() -> list[str]:
    return (DEMO / "test.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def small_settings(tmp_path_factory) -> list[tuple[str, object]]:
    """Return settings for part of the demo corpus; training takes about fifteen seconds."""
    directory = tmp_path_factory.mktemp("small")
    for side in ("en", "de"):
        lines = (DEMO / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (directory / f"train.{side}").write_text("".join(lines[:6000]), encoding="utf-8")
    files = [str(directory / f"train.{side}") for side in ("en", "de")]
    dev = [str(DEMO / f"dev.{side}") for side in ("en", "de")]
    return [("data.train", files), ("data.dev", dev), *SMALL.items()]


def create_once(tmp_path_factory, name: str, create: Callable[[Path], object]) -> Path:
    """Return a directory that one pytest process creates while the others wait for it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / f"{name}.made").exists():
            create(root / name)
            (root / f"{name}.made").touch()
    return root / name


@pytest.fixture(scope="session")
def trained(tmp_path_factory, small_settings) -> Path:
    """Return the directory of a trained model; tests must not change it."""
    config = load_config(None, small_settings)
    return create_once(
        tmp_path_factory, "trained", lambda path: train_run(config, path, lambda _: None)
    )


@pytest.fixture(scope="session")
def tiny_trained(tmp_path_factory) -> Path:
    """Return the directory of an under-trained model; tests must not change it."""
    directory = tmp_path_factory.mktemp("tiny")
    for path, lines in zip(("train.en", "train.de"), zip(*tiny_pairs(), strict=True), strict=True):
        (directory / path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [str(directory / name) for name in ("train.en", "train.de")]
    longer = {"train.steps": 60, "train.validate_every": 60}  # fewer steps give empty translations
    settings = {**TINY_SETTINGS, **longer}
    config = load_config(None, [("data.train", files), *settings.items()])
    return create_once(
        tmp_path_factory, "tiny_trained", lambda path: train_run(config, path, lambda _: None)
    )


@pytest.fixture(scope="session")
def copying_model(tmp_path_factory, tokenizers) -> Path:
    """Return the directory of a model that outputs its source; tests must not change it."""
    return make_copying_model(tmp_path_factory.mktemp("handmade") / "copying", tokenizers)


@pytest.fixture(scope="session")
def repeating_model(tmp_path_factory, tokenizers) -> Path:
    """Return the directory of a model that repeats "mag" and never outputs EOS.

    If "mag" must not be repeated, the model outputs "mag sieht" and then EOS.
    """
    logits = {"▁mag": 60.0, "▁sieht": 40.0, "</s>": 20.0}
    directory = tmp_path_factory.mktemp("handmade") / "repeating"
    return make_unigram_model(directory, tokenizers, logits)


@pytest.fixture(scope="session")
def hesitant_model(tmp_path_factory, tokenizers) -> Path:
    """Return the directory of a model that outputs "mag" with probability 73% and EOS with 27%.

    The most likely piece is always "mag", but the most likely translation is empty.
    """
    logits = {"▁mag": 1.0, "</s>": 0.0}
    directory = tmp_path_factory.mktemp("handmade") / "hesitant"
    return make_unigram_model(directory, tokenizers, logits)


@pytest.fixture(scope="session")
def random_pieces_model(tmp_path_factory, tokenizers) -> Path:
    """Return the directory of a model that outputs four equally likely pieces and never EOS."""
    logits = dict.fromkeys(["▁mag", "▁sieht", "▁findet", "▁likes"], 20.0)
    directory = tmp_path_factory.mktemp("handmade") / "random"
    return make_unigram_model(directory, tokenizers, logits)

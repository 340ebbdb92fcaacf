"""What is ready before the first step: pairs, vocabulary, ids."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtcli.config import Config
from mtcli.data import Corpus, EncodedCorpus, drop_overlong, encode, hold_out, read_corpus
from mtcli.signals import run_interruptibly
from mtcli.tokenizer import Tokenizers, train_tokenizers
from mtcli.training.validation import DevSet

Notify = Callable[[str], None]

_FEW_PAIRS = 1_000


@dataclass(frozen=True)
class Pairs:
    """What is learned from, and what is validated on."""

    train: Corpus
    dev: Corpus

    def digest(self) -> str:
        """A fingerprint of all pairs."""
        return f"{self.train.digest()}-{self.dev.digest()}"


@dataclass(frozen=True)
class Prepared:
    """The training and the dev set of a run, with the vocabulary they are written in."""

    tokenizers: Tokenizers
    train_set: EncodedCorpus
    dev_set: DevSet


def read_pairs(config: Config, notify: Notify) -> Pairs:
    """The training and the dev pairs that `config` names."""
    corpus = _read(config.data.train, config, _about("training", notify))
    if config.data.dev:
        train, dev = corpus, _read(config.data.dev, config, _about("dev", notify))
        origin = "from the dev files"
    else:
        train, dev = hold_out(corpus, config.data.dev_pairs)
        origin = "held out of the corpus; --dev SOURCE TARGET would keep it whole"
    notify(f"data: {len(train):,} training pairs; {len(dev):,} dev pairs, {origin}")
    if not config.data.dev and len(dev) < config.data.dev_pairs:
        notify(f"  data.dev_pairs={config.data.dev_pairs} is more than a tenth; it is reduced")
    if len(train) < _FEW_PAIRS and not config.train.start_from:
        notify(
            f"warning: {len(train):,} training pairs are too few to learn a language; expect "
            "useless translations; use tens of thousands of pairs, or fine-tune a model with --from"
        )
    return Pairs(train, dev)


def digest_by_seed(config: Config) -> str:
    """Return the digest of the pairs of mtcli 0.1.0, which held out dev pairs by `train.seed`."""
    corpus = _read(config.data.train, config, lambda _: None)
    return Pairs(*hold_out(corpus, config.data.dev_pairs, config.train.seed)).digest()


def _read(files: tuple[Path, Path], config: Config, notify: Notify) -> Corpus:
    """Read the pairs of two files that can be short enough."""
    corpus = read_corpus(*files, notify)
    return drop_overlong(corpus, config.data.max_length, config.tokenizer.normalization, notify)


def learn_pieces(pairs: Pairs, config: Config, notify: Notify) -> Tokenizers:
    """The vocabulary of a new run."""
    train = pairs.train
    tokenizers = run_interruptibly(
        lambda: train_tokenizers(train.source, train.target, config.tokenizer)
    )
    source, target = len(tokenizers.source), len(tokenizers.target)
    sizes = f"{source:,} shared" if tokenizers.is_shared else f"{source:,} and {target:,}"
    notify(f"vocabulary: {sizes} pieces")
    wanted = config.tokenizer.vocab_size
    if min(source, target) < wanted:
        notify(f"  the corpus is too small for tokenizer.vocab_size={wanted}; it is reduced")
    return tokenizers


def prepare(pairs: Pairs, tokenizers: Tokenizers, config: Config, notify: Notify) -> Prepared:
    """Encode all pairs that fit."""
    max_length, n_shown = config.data.max_length, config.train.validate_pairs
    dev = pairs.dev
    return Prepared(
        tokenizers,
        encode(pairs.train, tokenizers, max_length, _about("training", notify)),
        DevSet(
            encode(dev, tokenizers, max_length, _about("dev", notify)),
            shown=Corpus(dev.source[:n_shown], dev.target[:n_shown]),
        ),
    )


def _about(what: str, notify: Notify) -> Notify:
    return lambda text: notify(f"{what}: {text}")

"""The model card: what a model directory tells a person who opens it."""

from pathlib import Path

from mtcli import __version__
from mtcli.checkpoint.directory import CARD, WeightsInfo, portable
from mtcli.checkpoint.files import write_file
from mtcli.config import Config


def write_card(directory: Path, config: Config, info: WeightsInfo, n_pairs: int) -> None:
    """Write README.md: data, sizes, BLEU with its signature, how to use it."""
    source, target = (path.name for path in portable(config).data.train)
    model, train = config.model, config.train
    vocabulary = "shared" if config.tokenizer.is_shared else "one for each language"
    write_file(
        directory / CARD,
        f"""\
# {_language(source)} to {_language(target)}

A translation model trained with [mtcli](https://pypi.org/project/mtcli) {__version__}.

| | |
|---|---|
| training data | {n_pairs:,} sentence pairs of `{source}` and `{target}` |
| architecture | {model.arch}, {model.n_encoder_layers}+{model.n_decoder_layers} layers, \
width {model.d_model}, {model.n_heads} heads |
| parameters | {info.n_parameters:,} |
| vocabulary | SentencePiece {config.tokenizer.kind}, {vocabulary} |
| training | {info.step:,} of {train.steps:,} steps, {train.optimizer}, seed {train.seed} |
| BLEU on the dev set, greedy search | {info.bleu:.2f} |
| signature | `{info.signature}` |

Translate with it, one sentence per line:

```
mtcli translate {directory.resolve().name} < input.txt > output.txt
```

`config.yaml` holds every setting, `log.jsonl` the course of the training. What the model knows it
has from its training data alone; look at its translations before you rely on them.
""",
    )


def _language(file_name: str) -> str:
    """The language code that a corpus file ends in, or its name if there is none."""
    return file_name.rpartition(".")[2]

"""Human-readable description of a model, for the model card and `mtcli info`."""

from pathlib import Path

from mtcli import __version__
from mtcli.files import write_file
from mtcli.model_dir.directory import WeightsInfo, load_saved_config, weights_info
from mtcli.model_dir.layout import CARD, EXPORT
from mtcli.model_dir.manifest import read_manifest


def write_card(directory: Path) -> None:
    """Write README.md with training data, sizes, BLEU with its signature, and usage."""
    languages = load_saved_config(directory).data.languages
    title = f"Translation model: {' to '.join(languages)}" if languages else "Translation model"
    description = "".join(
        f"- {name}: {value}\n"
        for name, value in (*describe(directory), *describe_export(directory))
    )
    write_file(
        directory / CARD,
        f"""\
# {title}

Trained with mtcli {__version__}.

{description}
To translate a text file, one sentence per line:

    mtcli translate {directory.resolve().name} < input.txt > output.txt

`config.yaml` contains all settings, and `log.jsonl` is the training log. The model reflects its
training data and makes mistakes: check its translations before you rely on them.
""",
    )


def describe(directory: Path) -> list[tuple[str, str]]:
    """Return a description of a model as pairs of name and value."""
    config, info = load_saved_config(directory), weights_info(directory)
    vocabulary = "shared" if config.tokenizer.is_shared else "separate for source and target"
    return [
        ("trained on", f"{_describe_size(info.n_pairs)} from {config.data.train}"),
        ("architecture", config.model.summary()),
        ("parameters", f"{info.n_parameters:,}"),
        ("vocabulary", f"SentencePiece {config.tokenizer.kind}, {vocabulary}"),
        ("training", f"at most {config.train.steps:,} steps, {config.train.optimizer}"),
        ("weights", info.weights or f"step {info.step:,}"),
        *_describe_score(info),
    ]


def _describe_size(n_pairs: int) -> str:
    return f"{n_pairs:,} sentence pairs" if n_pairs else "a stream of sentence pairs"


def describe_export(directory: Path) -> list[tuple[str, str]]:
    """Return a description of the export as pairs of name and value; empty if it is stale."""
    manifest = read_manifest(directory / EXPORT)
    if manifest is None or manifest.shortlist is None or not manifest.is_fresh(directory):
        return []
    return [("shortlist", manifest.shortlist.summary())]


def _describe_score(info: WeightsInfo) -> list[tuple[str, str]]:
    if info.bleu is None:
        return []
    return [("dev BLEU", f"{info.bleu:.2f} with greedy search"), ("signature", info.signature)]

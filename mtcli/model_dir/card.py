"""Human-readable description of a model, for the model card and `mtcli info`."""

from pathlib import Path

from mtcli import __version__
from mtcli.config.tags import ModelTags
from mtcli.counts import format_count
from mtcli.files import write_file
from mtcli.model_dir.directory import WeightsInfo, load_saved_config, weights_info
from mtcli.model_dir.layout import CARD, EXPORT
from mtcli.model_dir.manifest import read_manifest
from mtcli.model_dir.tags import model_tags
from mtcli.tokenizer import load_tokenizers, tokenizer_names


def write_card(directory: Path) -> None:
    """Write the model card, README.md: training data, sizes, BLEU with its signature, and usage."""
    data, tags = load_saved_config(directory).data, _tags(directory)
    languages = " to ".join(data.languages or ()) or ", ".join(f"to {to}" for to in tags.languages)
    title = f"Translation model: {languages}" if languages else "Translation model"
    choice = f" --to {tags.languages[0]}" if len(tags.languages) > 1 else ""
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

    mtcli translate {directory.resolve().name}{choice} < input.txt > output.txt

`config.yaml` contains all settings, and `log.jsonl` is the training log. The model reflects its
training data and makes mistakes: check its translations before you rely on them.
""",
    )


def describe(directory: Path) -> list[tuple[str, str]]:
    """Return a description of a model as (name, value) pairs."""
    config, info = load_saved_config(directory), weights_info(directory)
    vocabulary = "shared" if config.tokenizer.is_shared else "separate for source and target"
    return [
        ("trained on", f"{_describe_size(info.n_pairs)} from {config.data.train}"),
        ("architecture", config.model.summary()),
        ("parameters", f"{info.n_parameters:,}"),
        ("vocabulary", f"SentencePiece {config.tokenizer.kind}, {vocabulary}"),
        (
            "training",
            f"at most {format_count(config.train.steps, 'step')}, {config.train.optimizer}",
        ),
        ("weights", info.weights or f"step {info.step:,}"),
        *_describe_tags(_tags(directory)),
        *_describe_score(info, config.train.dev_rule),
    ]


def _tags(directory: Path) -> ModelTags:
    has_tokenizer = tokenizer_names(directory)  # optional for a description
    return model_tags(directory, load_tokenizers(directory)) if has_tokenizer else ModelTags()


def _describe_tags(tags: ModelTags) -> list[tuple[str, str]]:
    rows = (("languages", "--to", tags.languages), ("tags", "--tag", tags.tags))
    return [(name, f"{', '.join(values)} ({option})") for name, option, values in rows if values]


def _describe_size(n_pairs: int) -> str:
    return format_count(n_pairs, "sentence pair") if n_pairs else "a stream of sentence pairs"


def describe_export(directory: Path) -> list[tuple[str, str]]:
    """Return (name, value) pairs that describe the shortlist; [] without an up-to-date export."""
    manifest = read_manifest(directory / EXPORT)
    if manifest is None or manifest.shortlist is None or not manifest.is_fresh(directory):
        return []
    return [("shortlist", manifest.shortlist.summary())]


def _describe_score(info: WeightsInfo, rule: str) -> list[tuple[str, str]]:
    if info.bleu is None:
        return []
    rule_text = f", {rule} of {len(info.sets)} dev sets" if info.sets else ""
    sets = ", ".join(f"{name} {bleu:.2f}" for name, bleu in info.sets.items())
    return [
        ("dev BLEU", f"{info.bleu:.2f} with greedy search{rule_text}"),
        *([("dev sets", sets)] if sets else []),
        ("signature", info.signature),
    ]

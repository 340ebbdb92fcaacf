"""The model card: what a model directory tells a person who opens it."""

from pathlib import Path

from mtcli import __version__
from mtcli.checkpoint.directory import CARD, describe, load_saved_config
from mtcli.checkpoint.files import write_file
from mtcli.export.manifest import describe_export


def write_card(directory: Path) -> None:
    """Write README.md: data, sizes, BLEU with its signature, how to use it."""
    source, target = (path.name for path in load_saved_config(directory).data.train)
    facts = "".join(
        f"- {name}: {value}\n"
        for name, value in (*describe(directory), *describe_export(directory))
    )
    write_file(
        directory / CARD,
        f"""\
# From {_language(source)} to {_language(target)}

A translation model, trained with mtcli {__version__}.

{facts}
Translate with it, one sentence per line:

    mtcli translate {directory.resolve().name} < input.txt > output.txt

`config.yaml` holds every setting, `log.jsonl` the course of the training. What the model knows it
has from its training data alone: look at its translations before you rely on them.
""",
    )


def _language(file_name: str) -> str:
    """The language code that a corpus file ends in, or its name if there is none."""
    suffix = file_name.rpartition(".")[2]
    return suffix if len(suffix) in (2, 3) and suffix != "txt" else file_name

"""`mtcli evaluate`: score a model or a file of translations."""

import functools
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import INPUT_OUTPUT, Command, Quiet, SourceLang, Tag, TargetLang, To, app
from mtcli.cli.progress import progress_bar
from mtcli.config.search import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtcli.data.formats.base import Languages
    from mtcli.translation.line_translator import OnProgress


@app.command(
    cls=Command, epilog="Example: mtcli evaluate runs/demo data/demo/test.en data/demo/test.de"
)
def evaluate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL SOURCE] REFERENCE...",
            help="Model and source file (without --hypothesis), then the references; or MODEL and "
            "a corpus in another format, such as test.tsv or newstest2021.en-de.xml.",
        ),
    ],
    hypothesis: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of translations to score.",
            show_default="translate SOURCE with MODEL",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    to: To = None,
    tag: Tag = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=INPUT_OUTPUT)
    ] = False,
    quiet: Quiet = False,
    beam_size: opts.BeamSize = None,
    length_penalty: opts.LengthPenalty = None,
    engine: opts.EngineName = "auto",
    quantization: opts.Quantization = None,
    shortlist: opts.Shortlist = None,
    threads: opts.Threads = None,
    device: opts.Device = "auto",
) -> None:
    """Compute BLEU and chrF of translations, with signatures and 95% confidence intervals."""
    from mtcli.data.corpus import read_references
    from mtcli.data.formats import has_known_suffix
    from mtcli.data.formats.base import Languages
    from mtcli.data.lines import read_aligned, read_lines
    from mtcli.evaluation.evaluate import evaluate_model, evaluate_translations
    from mtcli.translation.translator import Translator

    if hypothesis is None and len(files) < 2:
        raise typer.BadParameter(
            "expected MODEL SOURCE REFERENCE..., MODEL CORPUS or --hypothesis FILE REFERENCE"
        )
    notify = _ignore if quiet else functools.partial(typer.echo, err=True)
    if hypothesis is None and len(files) == 2:
        languages = _languages(Path(files[0]), source_lang, target_lang or to)
        lines, *references = read_references(files[1], languages, notify)
    elif hypothesis and len(files) == 1 and has_known_suffix(files[0]):
        _, *references = read_references(files[0], Languages(source_lang, target_lang), notify)
        lines = list(read_lines(hypothesis))
    else:
        paths = [Path(file) for file in files]
        lines, *references = read_aligned([hypothesis, *paths] if hypothesis else paths[1:])
    if hypothesis:
        result = evaluate_translations(lines, references)
    else:
        engine_options = EngineOptions(
            engine=engine,
            device=device,
            quantization=quantization,
            threads=threads,
            shortlist=shortlist,
        )
        opts.check_engine_options(engine_options)
        translator = Translator(files[0], engine=engine_options, to=to, tag=tag)
        translator.tags.symbols(to, tag)
        typed = {"beam_size": beam_size, "length_penalty": length_penalty}
        options = opts.override(replace(translator.options, n_best=1), typed)
        with _progress(len(lines), is_visible=not quiet) as on_progress:
            result = evaluate_model(
                translator, lines, references, options=options, on_progress=on_progress
            )
    typer.echo(result.to_json() if as_json else str(result))


def _ignore(_: str) -> None:
    """Ignore a message."""


def _languages(model: Path, source_lang: str | None, target_lang: str | None) -> "Languages":
    """Return the languages of the model, unless the user specifies different ones."""
    from mtcli.data.formats.base import Languages
    from mtcli.model_dir.directory import load_saved_config

    data = load_saved_config(model).data
    return Languages(source_lang or data.source_lang, target_lang or data.target_lang)


@contextmanager
def _progress(n_lines: int, *, is_visible: bool) -> "Iterator[OnProgress]":
    """Run the block with a progress bar; yield the function that advances it."""
    from mtcli.translation.stream import Progress

    progress = Progress(n_lines)
    progress.read(n_lines, n_lines)
    with progress_bar(progress, is_visible=is_visible):
        yield progress.advance

"""`mtcli evaluate`."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as given
from mtcli.cli.base import Quiet, app
from mtcli.cli.progress import progress_bar
from mtcli.errors import OptionsError
from mtcli.options import EngineOptions, SearchOptions

if TYPE_CHECKING:
    from mtcli.translation import Translator


@app.command(
    epilog="Example: mtcli evaluate runs/demo data/demo/test.en data/demo/test.de",
)
def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[MODEL SOURCE] REFERENCE...",
            help="Model and source text (not with --hypothesis), then the references.",
        ),
    ],
    hypothesis: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Score this translation.",
            show_default="translate SOURCE with MODEL",
            rich_help_panel=given.INPUT_OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=given.INPUT_OUTPUT)
    ] = False,
    beam_size: given.BeamSize = None,
    length_penalty: given.LengthPenalty = None,
    engine: given.EngineName = "auto",
    quantization: given.Quantization = None,
    shortlist: given.Shortlist = None,
    threads: given.Threads = None,
    device: given.Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Score translations: BLEU and chrF with signatures and 95 % confidence intervals."""
    from mtcli.evaluation import evaluate as score
    from mtcli.lines import read_aligned
    from mtcli.translation import Translator

    if hypothesis is None and len(files) < 3:
        raise typer.BadParameter(
            "expected MODEL SOURCE REFERENCE... or --hypothesis FILE REFERENCE"
        )
    lines, *references = read_aligned([hypothesis, *files] if hypothesis else files[1:])
    if hypothesis is None:
        engine_options = EngineOptions(
            engine=engine,
            device=device,
            quantization=quantization,
            threads=threads,
            shortlist=shortlist,
        )
        translator = Translator(files[0], engine=given.checked(engine_options))
        options = _options(translator.options, beam_size, length_penalty)
        lines = _translate(translator, lines, options, is_quiet=quiet)
    scores = score(lines, references)
    if as_json:
        typer.echo(json.dumps([asdict(s) for s in scores], ensure_ascii=False, indent=1))
    else:
        typer.echo("\n".join(map(str, scores)))


def _translate(
    translator: "Translator", lines: list[str], options: SearchOptions, *, is_quiet: bool
) -> list[str]:
    from mtcli.stream import Progress

    progress = Progress(len(lines))
    progress.read(len(lines), len(lines))
    with progress_bar(progress, is_visible=not is_quiet):
        found = translator.stream(lines, options, progress.advance)
        return [candidates[0].text for candidates in found]


def _options(
    own: SearchOptions, beam_size: int | None, length_penalty: float | None
) -> SearchOptions:
    """Return the model's search options with the changes that the user asked for."""
    try:
        return replace(
            own,
            n_best=1,
            beam_size=own.beam_size if beam_size is None else beam_size,
            length_penalty=own.length_penalty if length_penalty is None else length_penalty,
            with_scores=False,
        )
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error

"""`mtcli evaluate`."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli import options as given
from mtcli.cli.base import app
from mtcli.errors import OptionsError
from mtcli.options import EngineOptions, SearchOptions


@app.command(
    epilog="Example: mtcli evaluate runs/demo data/demo/test.en data/demo/test.de",
)
def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[MODEL SOURCE] REFERENCE...",
            help="A model and what it is to translate (not with --hypothesis), then references.",
        ),
    ],
    hypothesis: Annotated[
        Path | None, typer.Option(help="Score this translation; no model is needed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
    beam_size: given.BeamSize = None,
    length_penalty: given.LengthPenalty = None,
    engine: given.EngineName = "auto",
    quantization: given.Quantization = None,
    shortlist: given.Shortlist = None,
    threads: given.Threads = None,
    device: given.Device = "auto",
) -> None:
    """Measure translations: BLEU and chrF with signature and 95 % confidence interval."""
    from mtcli.evaluation import evaluate as score
    from mtcli.lines import read_aligned
    from mtcli.translation import Translator

    if hypothesis is None and len(files) < 3:
        raise typer.BadParameter("give MODEL SOURCE REFERENCE..., or --hypothesis FILE REFERENCE")
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
        lines = [candidates[0].text for candidates in translator.stream(lines, options)]
    scores = score(lines, references)
    if as_json:
        typer.echo(json.dumps([asdict(s) for s in scores], ensure_ascii=False, indent=1))
    else:
        typer.echo("\n".join(map(str, scores)))


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

"""Commands about models as a whole: `mtcli info`, `mtcli export` and `mtcli average`."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import ModelDirectory, app
from mtcli.cli.options import QUANTIZATION_HELP, check_name
from mtcli.errors import EngineError
from mtcli.options import QUANTIZATIONS


@app.command(epilog="Example: mtcli info runs/demo")
def info(model: ModelDirectory) -> None:
    """Describe a model: size, vocabulary, training, quality."""
    from mtcli.checkpoint.directory import describe
    from mtcli.export.manifest import describe_export

    for name, value in [*describe(model), *describe_export(model)]:
        typer.echo(f"{name:<14}{value}")


@app.command(epilog="Example: mtcli export runs/demo")
def export(
    model: ModelDirectory,
    to: Annotated[str, typer.Option(metavar="NAME", help="Format: ctranslate2.")] = "ctranslate2",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write to this new directory.", show_default="MODEL/ctranslate2"
        ),
    ] = None,
    quantization: Annotated[str, typer.Option(metavar="NAME", help=QUANTIZATION_HELP)] = "int8",
) -> None:
    """Convert a model for another engine; training does this at its end as well."""
    from mtcli.export.directory import make_export, write_plain
    from mtcli.export.manifest import EXPORT

    check_name("to", to, (EXPORT,))
    check_name("quantization", quantization, QUANTIZATIONS)
    if output and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise EngineError(f"{output} already exists", hint="choose a new directory")
    if output:
        write_plain(model, quantization, output)
    else:
        make_export(model, quantization)
    typer.echo(output or model / EXPORT)


@app.command(epilog="Example: mtcli average runs/demo --out runs/mean")
def average(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Models of the same vocabulary, or one run."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the model; created if necessary.")
    ],
) -> None:
    """Average the weights of several models, or the weights that one run has kept."""
    from mtcli.checkpoint.averaging import average_models
    from mtcli.training.card import write_card

    info = average_models(models, out)
    write_card(out)
    typer.echo(f"{out}: {info.weights}")

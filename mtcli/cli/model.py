"""Commands about models as a whole: `mtcli info`, `mtcli export` and `mtcli average`."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import ModelDirectory, app
from mtcli.cli.options import check_name
from mtcli.errors import EngineError
from mtcli.options import QUANTIZATIONS


@app.command(epilog="Example: mtcli info runs/demo")
def info(model: ModelDirectory) -> None:
    """Say what a model is: size, vocabulary, training, quality."""
    from mtcli.checkpoint.directory import describe
    from mtcli.export.manifest import describe_export

    for name, value in [*describe(model), *describe_export(model)]:
        typer.echo(f"{name:<14}{value}")


@app.command(epilog="Example: mtcli export runs/demo")
def export(
    model: ModelDirectory,
    to: Annotated[str, typer.Option(metavar="ctranslate2", help="The format.")] = "ctranslate2",
    output: Annotated[
        Path | None, typer.Option(help="A directory; default: ctranslate2/ inside the model's.")
    ] = None,
    quantization: Annotated[
        str, typer.Option(metavar="|".join(QUANTIZATIONS), help="What weights are stored in.")
    ] = "int8",
) -> None:
    """Write a model in the format of another engine; training does it, too, when it is over."""
    from mtcli.export.directory import make_export, write_plain
    from mtcli.export.manifest import EXPORT

    check_name("to", to, (EXPORT,))
    check_name("quantization", quantization, QUANTIZATIONS)
    if output and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise EngineError(f"{output} is already there", hint="choose a new directory")
    if output:
        write_plain(model, quantization, output)
    else:
        make_export(model, quantization)
    typer.echo(output or model / EXPORT)


@app.command(epilog="Example: mtcli average runs/demo --out runs/mean")
def average(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Models of one vocabulary, or one run."),
    ],
    out: Annotated[Path, typer.Option(help="Directory of the new model.")],
) -> None:
    """Write the mean of several models; of one run, the mean of the weights it has kept."""
    from mtcli.checkpoint.averaging import average_models
    from mtcli.training.card import write_card

    info = average_models(models, out)
    write_card(out)
    typer.echo(f"{out}: {info.weights}")

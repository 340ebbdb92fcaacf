"""Commands for models and recipes: `info`, `export`, `average` and `config`."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import INPUT_OUTPUT, Command, ModelDirectory, OutputDirectory, app
from mtcli.cli.completion import complete, complete_recipe
from mtcli.config.search import QUANTIZATIONS
from mtcli.errors import EngineError

_EXPORT_FORMATS = ("ctranslate2",)


@app.command(cls=Command, epilog="Example: mtcli info runs/demo")
def info(model: ModelDirectory) -> None:
    """Describe a model: size, vocabulary, training and quality."""
    from mtcli.model_dir.card import describe, describe_export

    for name, value in [*describe(model), *describe_export(model)]:
        typer.echo(f"{name:<14}{value}")


@app.command(cls=Command, epilog="Example: mtcli export runs/demo")
def export(
    model: ModelDirectory,
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Export format: {opts.format_choices(_EXPORT_FORMATS)}.",
            autocompletion=complete(_EXPORT_FORMATS),
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = "ctranslate2",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the export to this directory, which must be new or empty.",
            show_default="MODEL/ctranslate2",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    quantization: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=opts.QUANTIZATION_HELP,
            autocompletion=complete(QUANTIZATIONS),
            rich_help_panel=opts.ENGINE,
        ),
    ] = "int8",
) -> None:
    """Convert a model to CTranslate2, as `mtcli train` does after training."""
    from mtcli.export.directory import make_export, write_standalone
    from mtcli.model_dir.layout import EXPORT

    opts.check_choice("to", to, _EXPORT_FORMATS)
    opts.check_choice("quantization", quantization, QUANTIZATIONS)
    if output and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise EngineError(
            f"{output} already exists", hint="choose a new or empty directory for --output"
        )
    if output:
        write_standalone(model, quantization, output)
    else:
        make_export(model, quantization)
    typer.echo(output or model / EXPORT)


@app.command(cls=Command, epilog="Example: mtcli average runs/demo --out runs/mean")
def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...", help="Models with the same vocabulary, or one run with checkpoints."
        ),
    ],
    out: OutputDirectory,
) -> None:
    """Average the weights of several models, or of the validated checkpoints of one run."""
    from mtcli.model_dir.averaging import average_models
    from mtcli.model_dir.card import write_card

    info = average_models(models, out)
    write_card(out)
    typer.echo(f"{out}: {info.weights}")


@app.command(cls=Command, epilog="Example: mtcli config transformer-base > my.yaml")
def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Recipe to print; `reference` lists every key with its default.",
            show_default="list all recipes",
            autocompletion=complete_recipe,
        ),
    ] = None,
) -> None:
    """List the recipes for `mtcli train --config NAME`, or print one."""
    from mtcli.config.recipes import all_recipes, find_recipe

    if name is not None:
        typer.echo(find_recipe(name).text, nl=False)
        return
    recipes = all_recipes()
    width = max((len(recipe.name) for recipe in recipes), default=0)
    for recipe in recipes:
        typer.echo(f"{recipe.name:<{width}}  {recipe.summary}")

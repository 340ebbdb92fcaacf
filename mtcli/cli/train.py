"""`mtcli train`."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import Quiet, Verbose, app


@app.command(
    epilog="Example: mtcli train data/demo/train.en data/demo/train.de --out runs/my-model"
)
def train(
    out: Annotated[Path, typer.Option(help="Directory of the model; made if it is not there.")],
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="Text, one sentence per line.")
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="Its translation, line by line.")
    ] = None,
    dev: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE TARGET", help="Two files to validate on."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    overrides: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, e.g. train.steps=500."),
    ] = [],
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove the run in --out first.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model from two line-aligned text files. The same command again goes on."""
    from mtcli.config import load_config, parse_override

    if source and not target:
        raise typer.BadParameter("a source file needs a target file: mtcli train SOURCE TARGET")
    files = [("data.train", [source, target])] if source else []
    files += [("data.dev", list(dev))] if dev else []
    settings = load_config(config, [*files, *map(parse_override, overrides)])

    from rich.console import Console  # only now: torch loads slowly, mistakes are told at once

    from mtcli.report import Stopped, open_display
    from mtcli.training import RunOptions, train_run

    display = open_display(Console(stderr=True), is_quiet=quiet, is_verbose=verbose)
    with contextlib.closing(display):
        result = train_run(settings, out, display, RunOptions(fresh=fresh))
    if isinstance(result, Stopped):
        raise typer.Exit(code=128 + result.signal)
    typer.echo(f"{out}: dev BLEU {result.bleu:.2f} [{result.signature}]")

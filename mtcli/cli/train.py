"""`mtcli train`: plan a run, then train or resume it."""

import contextlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli.base import INPUT_OUTPUT, Command, OutputDirectory, Quiet, Verbose, app
from mtcli.cli.completion import complete_recipe
from mtcli.cli.launcher import launch_processes
from mtcli.signals import raise_on_signals

if TYPE_CHECKING:
    from mtcli.config.load import Setting
    from mtcli.config.sections import Config
    from mtcli.planning.resolve import TrainRequest
    from mtcli.reporting.events import Finished, Stopped


_SETTINGS = "Settings"
_RUN = "Run"


def _check_dev(dev: tuple[Path, Path] | None) -> tuple[Path, Path] | None:
    """Raise `BadParameter` if --dev has only one file and consumed the next option as the other."""
    if dev and str(dev[1]).startswith("-"):
        raise typer.BadParameter(f"expected two files, got {dev[0]} and the option {dev[1]}")
    return dev


@app.command(
    cls=Command,
    epilog="Example: mtcli train data/demo/train.en data/demo/train.de --out runs/my-model",
)
@raise_on_signals("stopped during preparation; run the same command again")
def train(
    out: OutputDirectory,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="Source text, one sentence per line.",
            show_default="from --config",
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET",
            help="Translation of SOURCE, line by line.",
            show_default="from --config",
        ),
    ] = None,
    dev: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SOURCE TARGET",
            help="Source and target files of the dev set.",
            show_default="pairs held out from the corpus",
            callback=_check_dev,
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="YAML file, or name of a recipe that `mtcli config` lists.",
            show_default="chosen for the corpus and hardware",
            autocompletion=complete_recipe,
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    overrides: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one setting, such as train.steps=500; repeatable.",
            show_default="none",
            rich_help_panel=_SETTINGS,
        ),
    ] = [],
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Train as many steps as fit into this many minutes.",
            show_default="no limit",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start with the weights and the vocabulary of this model.",
            show_default="random weights",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan without training.", rich_help_panel=_RUN),
    ] = False,
    stop_after: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0.01,
            help="Save and stop after this many minutes; rerun the command to resume.",
            show_default="no limit",
            rich_help_panel=_RUN,
        ),
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Write event files for TensorBoard.", rich_help_panel=_RUN
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of training processes on this machine.",
            rich_help_panel=_RUN,
        ),
    ] = 1,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Delete the run in --out and start over.", rich_help_panel=_RUN
        ),
    ] = False,
) -> None:
    """Train a model on two line-aligned text files; rerun the command to resume."""
    from mtcli.config.recipes import find_config
    from mtcli.model_dir.directory import check_is_run
    from mtcli.model_dir.lock import check_is_unlocked
    from mtcli.planning.resolve import TrainRequest

    if source and not target:
        raise typer.BadParameter("SOURCE requires TARGET: mtcli train SOURCE TARGET")
    if stop_after is not None and math.isnan(stop_after):  # Typer accepts NaN in every range
        raise typer.BadParameter("--stop-after nan: must be a number of minutes")
    settings = _settings((source, target), dev, minutes, overrides)
    path = find_config(config) if config else None
    settings = [*_recipe_settings(path, settings), *settings]
    request = TrainRequest(out, path, settings, parent, fresh)
    if dry_run:
        _print_plan(request)
        return
    check_is_run(out)  # before the corpus is read
    if os.environ.get("RANK", "0") == "0":
        check_is_unlocked(out)
    if processes > 1 and "RANK" not in os.environ:
        raise typer.Exit(code=_launch(processes))
    resolved, plan = _resolve_config(request)

    from rich.console import Console

    from mtcli.reporting.display import TolerantDisplay, open_display
    from mtcli.training.run import RunOptions, train_run  # imports torch, so after the checks

    options = RunOptions(
        fresh, stop_after, tensorboard, tuple(plan), request.has_corpus, request.reader
    )
    is_quiet = quiet or os.environ.get("RANK", "0") != "0"
    console = Console(stderr=True)
    display = TolerantDisplay(open_display(console, is_quiet=is_quiet, is_verbose=verbose))
    with contextlib.closing(display):
        result = train_run(resolved, out, display, options)
    _print_result(result, request)


def _settings(
    corpus: tuple[Path | None, Path | None],
    dev: tuple[Path, Path] | None,
    minutes: float | None,
    overrides: list[str],
) -> "list[Setting]":
    """Return the settings from the command line; later ones win."""
    from mtcli.config.load import CommandLineSetting, parse_override

    settings: list[Setting] = [("data.train", [*map(str, corpus)])] if corpus[0] else []
    settings += [("data.dev", [*map(str, dev)])] if dev else []
    if minutes is not None:
        settings.append(CommandLineSetting("train.minutes", minutes, f"--minutes {minutes:g}"))
    return [*settings, *map(parse_override, overrides)]


def _recipe_settings(path: Path | None, settings: "Sequence[Setting]") -> "list[Setting]":
    """Return settings that remove the dev set of a recipe if the user names another corpus."""
    from mtcli.config.recipes import recipe_at

    recipe = recipe_at(path) if path else None
    if recipe is None:
        return []
    keys = {key for key, _ in settings}
    if keys.isdisjoint({"data", "data.train"}):
        recipe.check_corpus(has_dev="data.dev" in keys)
        return []
    return [("data.dev", None)]  # a later --dev wins


def _print_result(result: "Finished | Stopped", request: "TrainRequest") -> None:
    """Print the score of a finished run, or exit with the signal's code if the run was stopped."""
    from mtcli.distributed import is_first_process
    from mtcli.reporting.events import Stopped

    if isinstance(result, Stopped):
        if request.is_fresh and result.step and is_first_process():
            typer.echo("(without --fresh, which would start over)", err=True)
        raise typer.Exit(code=128 + result.signal if result.signal else 0)
    if is_first_process():
        typer.echo(f"{request.out}: dev BLEU {result.bleu:.2f} [{result.signature}]")


def _launch(n_processes: int) -> int:
    """Run this command in several processes and return the exit code."""
    from mtcli.hardware import usable_cores

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // n_processes)))
    return launch_processes([sys.executable, "-m", "mtcli", *sys.argv[1:]], n_processes)


def _print_plan(request: "TrainRequest") -> None:
    """Print the plan for a run without importing torch."""
    from mtcli.planning.plan import plan_lines
    from mtcli.planning.resolve import plan_for

    for line in plan_lines(plan_for(request, lambda text: typer.echo(text, err=True))):
        typer.echo(line)


def _resolve_config(request: "TrainRequest") -> "tuple[Config, list[str]]":
    """Return the complete configuration and a description of the automatic choices."""
    from mtcli.planning.plan import plan_lines
    from mtcli.planning.resolve import is_resumed, plan_for, resolve

    if request.file is not None or is_resumed(request):
        return resolve(request), []
    plan = plan_for(request, lambda _: None)  # training prints the notices about the corpus
    return plan.config, plan_lines(plan)

"""`mtcli train`."""

import contextlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli.base import Quiet, Verbose, app
from mtcli.cli.team import run_together
from mtcli.signals import raising

if TYPE_CHECKING:
    from mtcli.config import Config, Setting
    from mtcli.planning import Wish
    from mtcli.report import Finished, Stopped


_SETTINGS = "Settings"
_RUN = "Run"


@app.command(
    epilog="Example: mtcli train data/demo/train.en data/demo/train.de --out runs/my-model"
)
@raising("stopped during preparation; run the same command again")
def train(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the model; created if necessary.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE", help="Text, one sentence per line.", show_default="from --config"
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET", help="Its translation, line by line.", show_default="from --config"
        ),
    ] = None,
    dev: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SOURCE TARGET",
            help="Two files to validate on.",
            show_default="pairs held out of the corpus",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="YAML file, or name of a recipe that `mtcli config` lists.",
            show_default="chosen for corpus and machine",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    overrides: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one setting, such as train.steps=500. Repeatable.",
            show_default="none",
            rich_help_panel=_SETTINGS,
        ),
    ] = [],
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Train as many steps as fit into this time.",
            show_default="no limit",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start with the weights and vocabulary of this model.",
            show_default="random weights",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan; train nothing.", rich_help_panel=_RUN),
    ] = False,
    stop_after: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0.01,
            help="Save and stop after this many minutes. Rerun the command to resume.",
            show_default="no limit",
            rich_help_panel=_RUN,
        ),
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Also write event files for TensorBoard.", rich_help_panel=_RUN
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
        typer.Option("--fresh", help="Remove the run in --out first.", rich_help_panel=_RUN),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model from two line-aligned text files. Rerun the command to resume."""
    from mtcli.checkpoint.directory import check_is_run
    from mtcli.checkpoint.lock import check_is_unlocked
    from mtcli.config.recipes import find_config
    from mtcli.planning import Wish

    if source and not target:
        raise typer.BadParameter("SOURCE requires TARGET: mtcli train SOURCE TARGET")
    if stop_after is not None and math.isnan(stop_after):  # Typer accepts it in every range
        raise typer.BadParameter("--stop-after nan: must be a number of minutes")
    settings = _settings((source, target), dev, minutes, overrides)
    path = find_config(config) if config else None
    settings = [*_recipe_settings(path, settings), *settings]
    wish = Wish(out, path, settings, parent, fresh)
    if dry_run:
        _show_plan(wish)
        return
    check_is_run(out)  # before all the work of a plan
    if os.environ.get("RANK", "0") == "0":
        check_is_unlocked(out)
    resolved, plan = _resolved(wish)
    if processes > 1 and "RANK" not in os.environ:
        raise typer.Exit(code=_start_again(processes))

    from rich.console import Console  # import torch only now, so that errors come at once

    from mtcli.report import TolerantDisplay, open_display
    from mtcli.training import RunOptions, train_run

    options = RunOptions(fresh, stop_after, tensorboard, tuple(plan), wish.names_files)
    is_quiet = quiet or os.environ.get("RANK", "0") != "0"
    console = Console(stderr=True)
    display = TolerantDisplay(open_display(console, is_quiet=is_quiet, is_verbose=verbose))
    with contextlib.closing(display):
        result = train_run(resolved, out, display, options)
    _print_result(result, wish)


def _settings(
    corpus: tuple[Path | None, Path | None],
    dev: tuple[Path, Path] | None,
    minutes: float | None,
    overrides: list[str],
) -> "list[Setting]":
    """Return the settings of the command line; later ones win."""
    from mtcli.config import GivenSetting, parse_override

    settings: list[Setting] = [("data.train", [*map(str, corpus)])] if corpus[0] else []
    settings += [("data.dev", [*map(str, dev)])] if dev else []
    if minutes is not None:
        settings.append(GivenSetting("train.minutes", minutes, f"--minutes {minutes:g}"))
    return [*settings, *map(parse_override, overrides)]


def _recipe_settings(path: Path | None, settings: "Sequence[Setting]") -> "list[Setting]":
    """Return the settings that replace the data of a recipe if the user names another corpus."""
    from mtcli.config.recipes import recipe_at

    recipe = recipe_at(path) if path else None
    if recipe is None:
        return []
    keys = {key for key, _ in settings}
    if keys.isdisjoint({"data", "data.train"}):
        recipe.check_corpus(has_dev="data.dev" in keys)
        return []
    return [("data.dev", None)]  # --dev comes later and wins


def _print_result(result: "Finished | Stopped", wish: "Wish") -> None:
    """Print the score of a finished run; exit with the signal's code after a stop."""
    from mtcli.distributed import is_first_process
    from mtcli.report import Stopped

    if isinstance(result, Stopped):
        if wish.is_fresh and result.step and is_first_process():
            typer.echo("(but without --fresh, which would start over)", err=True)
        raise typer.Exit(code=128 + result.signal if result.signal else 0)
    if is_first_process():
        typer.echo(f"{wish.out}: dev BLEU {result.bleu:.2f} [{result.signature}]")


def _start_again(n_processes: int) -> int:
    """Run this very command several times at once; its exit code."""
    from mtcli.hardware import usable_cores

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // n_processes)))
    return run_together([sys.executable, "-m", "mtcli", *sys.argv[1:]], n_processes)


def _show_plan(wish: "Wish") -> None:
    """What would be done, without torch and so without waiting for it."""
    from mtcli.planning import lines, plan_of

    for line in lines(plan_of(wish, lambda text: typer.echo(text, err=True))):
        typer.echo(line)


def _resolved(wish: "Wish") -> "tuple[Config, list[str]]":
    """A complete configuration, and in words what was chosen for it."""
    from mtcli.planning import goes_on, lines, plan_of, resolve

    if wish.file is not None or goes_on(wish):
        return resolve(wish), []
    plan = plan_of(wish, lambda _: None)  # training reads the corpus again, and speaks then
    return plan.config, lines(plan)

"""`mtcli train`: plan a run, then train or resume it."""

import contextlib
import functools
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli.base import (
    INPUT_OUTPUT,
    Command,
    OutputDirectory,
    Quiet,
    SourceLang,
    TargetLang,
    Verbose,
    app,
    threads_option,
)
from mtcli.cli.completion import complete_recipe
from mtcli.cli.corpora import dev_corpora, training_corpora
from mtcli.cli.launcher import launch_processes
from mtcli.cli.settings import command_settings, lacks_corpus, recipe_settings
from mtcli.signals import raise_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtcli.config.load import Setting
    from mtcli.config.sections import Config
    from mtcli.planning.resolve import TrainRequest
    from mtcli.reporting.display import TolerantDisplay
    from mtcli.reporting.events import Finished, Stopped

_SETTINGS = "Settings"
_RUN = "Run"


def _check_dev(dev: tuple[Path, Path] | None) -> tuple[Path, Path] | None:
    """Return the files of --dev; raise `BadParameter` if the second one is the next option."""
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
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE TARGET | CORPUS]",
            help="Two line-aligned text files, or one corpus in another format, such as "
            "train.tsv.gz, memory.tmx or hf:wmt/wmt14/de-en; a mapping such as "
            "'{corpus: train.tsv, to: de}' sets options of the corpus.",
            show_default="from --config",
        ),
    ] = None,
    more: Annotated[
        list[str],
        typer.Option(
            "--corpus",
            metavar="NAME",
            help="Additional training corpus in any format; repeatable.",
            show_default="none",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = [],
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
    dev_corpus: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Dev set in any format, instead of --dev; repeatable for several dev sets.",
            show_default="none",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = [],
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory in which runs share prepared data; it is kept after training.",
            show_default="in --out, removed after training",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="YAML file, or the name of a recipe listed by `mtcli config`.",
            show_default="settings chosen for the corpus and the hardware",
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
            help="Train for as many steps as fit into this many minutes.",
            show_default="no limit",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start from the weights and the vocabulary of this model.",
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
        typer.Option("--tensorboard", help="Write TensorBoard event files.", rich_help_panel=_RUN),
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
    threads: Annotated[int | None, threads_option(_RUN)] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Delete the run in --out and start over.", rich_help_panel=_RUN
        ),
    ] = False,
) -> None:
    """Train a model on a parallel corpus; rerun the command to resume."""
    from mtcli.config.recipes import find_config
    from mtcli.planning.resolve import TrainRequest

    if corpus and len(corpus) > 2:
        raise typer.BadParameter(
            f"expected two files or one corpus, got {len(corpus)} names; add corpora with --corpus"
        )
    if dev and dev_corpus:
        raise typer.BadParameter("--dev and --dev-corpus are mutually exclusive")
    if stop_after is not None and math.isnan(stop_after):  # Typer accepts NaN in every range
        raise typer.BadParameter("--stop-after nan: must be a number of minutes")
    data = {
        "data.train": training_corpora(corpus or [], more),
        "data.dev": dev_corpora(dev, dev_corpus),
        "data.source_lang": source_lang,
        "data.target_lang": target_lang,
    }
    settings = command_settings(data, minutes, overrides)
    path = find_config(config) if config else None
    _check_has_corpus(out, path, settings)
    has_corpus = not (dry_run and lacks_corpus(path, settings))
    if has_corpus:
        settings = [*recipe_settings(path, settings), *settings]
    request = TrainRequest(out, path, settings, parent, fresh, cache=cache)
    if processes > 1 and "RANK" not in os.environ and not dry_run:
        _check_output(out)
        raise typer.Exit(code=_launch(processes))
    is_quiet = quiet or os.environ.get("RANK", "0") != "0"
    with contextlib.closing(_open_display(is_quiet=is_quiet, is_verbose=verbose)) as display:
        request.reader.on_progress = _on_reading(display)
        _check_output(out)  # before the corpus is read
        if dry_run:
            _print_plan(request, has_corpus=has_corpus)
            return
        resolved, plan = _resolve_config(request)

        from mtcli.training.run import RunOptions, train_run  # slow: imports torch

        options = RunOptions(
            fresh=fresh,
            stop_after=stop_after,
            threads=threads,
            tensorboard=tensorboard,
            plan=tuple(plan),
            check_data=request.has_corpus,
            reader=request.reader,
            cache=cache,
        )
        result = train_run(resolved, out, display, options)
    _print_result(result, request)


def _check_has_corpus(out: Path, file: Path | None, settings: "Sequence[Setting]") -> None:
    """Raise `BadParameter` if there is no training corpus, no config and no run to resume."""
    from mtcli.model_dir.directory import is_run

    is_named = any(key in ("data", "data.train") for key, _ in settings)
    if not is_named and file is None and not is_run(out):
        raise typer.BadParameter(
            f"expected SOURCE TARGET or CORPUS: {out} contains no run to resume, and there is no "
            "--config that names a corpus"
        )


def _check_output(out: Path) -> None:
    """Raise `CheckpointError` if `out` cannot be used for a run."""
    from mtcli.model_dir.directory import check_is_run
    from mtcli.model_dir.lock import check_is_unlocked

    check_is_run(out)
    if os.environ.get("RANK", "0") == "0":
        check_is_unlocked(out)


def _open_display(*, is_quiet: bool, is_verbose: bool) -> "TolerantDisplay":
    from rich.console import Console

    from mtcli.reporting.display import TolerantDisplay, open_display

    console = Console(stderr=True)
    return TolerantDisplay(open_display(console, is_quiet=is_quiet, is_verbose=is_verbose))


def _on_reading(display: "TolerantDisplay") -> "Callable[[int, float | None], None]":
    """Return a function that shows the progress of reading the corpus."""
    from mtcli.reporting.progress import PreparationProgress

    return functools.partial(PreparationProgress(display), "reading")


def _print_result(result: "Finished | Stopped", request: "TrainRequest") -> None:
    """Print the score of a finished run, or exit if a signal or --stop-after stopped the run."""
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


def _print_plan(request: "TrainRequest", *, has_corpus: bool) -> None:
    """Print the plan for a run and the pairs that its filters drop, without importing torch.

    Raise `CheckpointError` if --out contains a run with different settings.
    """
    from mtcli.model_dir.settings import check_settings
    from mtcli.planning.plan import plan_lines, with_training_pairs
    from mtcli.planning.resolve import plan_for, plan_without_corpus
    from mtcli.training.preview import preview_data

    if not has_corpus:
        typer.echo(
            "no corpus: the plan assumes 4.5 million pairs, the size of WMT 2014 English-German",
            err=True,
        )
        plan = plan_without_corpus(request)
        if not request.is_fresh:
            check_settings(request.out, plan.config)
        for line in plan_lines(plan):
            typer.echo(line)
        return
    notices: list[str] = []

    def notify(text: str) -> None:
        notices.append(text)
        typer.echo(text, err=True)

    plan = plan_for(request, notify)
    if not request.is_fresh:
        check_settings(request.out, plan.config)
    preview = preview_data(plan.config, request.reader, request.cache)
    if preview.n_training is not None:
        plan = with_training_pairs(plan, preview.n_training)
    for line in plan_lines(plan):
        typer.echo(line)
    for text in preview.notices:
        if text.removeprefix("training: ") not in notices:  # skip notices that the planner printed
            typer.echo(text, err=True)


def _resolve_config(request: "TrainRequest") -> "tuple[Config, list[str]]":
    """Return the complete configuration and the lines of the plan (none if nothing was planned).

    Only rank 0 plans. The other processes need only the device until rank 0 sends them its
    configuration.
    """
    from mtcli.planning.plan import plan_lines
    from mtcli.planning.resolve import is_resumed, plan_for, resolve, unplanned_config

    if os.environ.get("RANK", "0") != "0":
        return unplanned_config(request), []
    if request.file is not None or is_resumed(request):
        return resolve(request), []
    plan = plan_for(request, lambda _: None)  # training prints the notices about the corpus
    return plan.config, plan_lines(plan)

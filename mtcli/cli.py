"""The command line: parse, call one function, print. No torch is imported before a command runs."""

import contextlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mtcli.errors import DataError, MtcliError

if TYPE_CHECKING:
    from mtcli.config import SearchConfig
    from mtcli.engines import Translator


class ErrorsAsMessages(TyperGroup):
    """The one place where a user's mistake becomes a message instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors go to stderr."""
        try:
            return super().invoke(ctx)
        except MtcliError as error:
            _complain(str(error))
            raise typer.Exit(code=1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(code=130) from error
        except BrokenPipeError as error:
            # `mtcli ... | head` has read enough; nobody is left to write to at exit, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(code=0) from error
        except OSError as error:
            # The disk is full, a file is not readable, ...: what the system says is the message.
            place = f"{error.filename}: " if error.filename else ""
            _complain(f"{place}{error.strerror or error}")
            raise typer.Exit(code=1) from error


def _complain(message: str) -> None:
    color = None if os.environ.get("NO_COLOR") else typer.colors.RED
    typer.secho(f"error: {message}", fg=color, err=True)


app = typer.Typer(
    cls=ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="Start with: mtcli train train.en train.de --out my-model",
)

ModelDirectory = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Directory that `mtcli train` has made.")
]
BeamSize = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses kept at each step; default: the model's.")
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(min=0, max=10, help="Above 0 favours longer output; default: the model's."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="One line for every step.")]


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Two text files become a translator of your own."""
    if version:
        from mtcli import __version__

        typer.echo(f"mtcli {__version__}")
        raise typer.Exit


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
    from mtcli.training import train_run

    display = open_display(Console(stderr=True), is_quiet=quiet, is_verbose=verbose)
    with contextlib.closing(display):
        result = train_run(settings, out, display, fresh=fresh)
    if isinstance(result, Stopped):
        raise typer.Exit(code=128 + result.signal)
    typer.echo(f"{out}: dev BLEU {result.bleu:.2f} [{result.signature}]")


@app.command(epilog="Example: echo 'The old man sees a dog.' | mtcli translate runs/demo")
def translate(
    model: ModelDirectory,
    files: Annotated[
        list[Path], typer.Argument(metavar="[FILE]...", help="Default: standard input.")
    ] = [],
    output: Annotated[Path | None, typer.Option(help="Default: standard output.")] = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Translate text, line by line: one line out for every line in."""
    from mtcli.engines.stream import Tally, lines_as_they_come, translate_lines

    translator, options = _open_translator(model, beam_size, length_penalty, device)
    tally = Tally()
    with contextlib.ExitStack() as stack:
        inputs = [stack.enter_context(_open(file, "rb")) for file in files] or [_stdin()]
        if output and output.exists() and any(output.samefile(file) for file in files):
            raise DataError(f"{output} is an input, too", hint="choose another --output")
        out = stack.enter_context(_open(output, "wb")) if output else sys.stdout.buffer
        for file in inputs:
            for done in translate_lines(translator, lines_as_they_come(file), options):
                out.writelines(f"{text}\n".encode() for text in done.texts)
                out.flush()
                tally += done.tally
    for notice in [] if quiet else tally.notices():
        typer.echo(f"note: {notice}", err=True)


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
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Measure translations: BLEU and chrF with signature and 95 % confidence interval."""
    from mtcli.data import read_aligned
    from mtcli.evaluation import evaluate as score

    if hypothesis is None and len(files) < 3:
        raise typer.BadParameter("give MODEL SOURCE REFERENCE..., or --hypothesis FILE REFERENCE")
    lines, *references = read_aligned([hypothesis, *files] if hypothesis else files[1:])
    if hypothesis is None:
        translator, options = _open_translator(files[0], beam_size, length_penalty, device)
        lines = [candidates[0].text for candidates in translator.translate(lines, options)]
    scores = score(lines, references)
    if as_json:
        typer.echo(json.dumps([asdict(s) for s in scores], ensure_ascii=False, indent=1))
    else:
        typer.echo("\n".join(map(str, scores)))


@app.command(epilog="Example: mtcli info runs/demo")
def info(model: ModelDirectory) -> None:
    """Say what a model is: size, vocabulary, training, quality."""
    from mtcli.checkpoint.directory import describe

    for name, value in describe(model):
        typer.echo(f"{name:<14}{value}")


def _open_translator(
    model: Path, beam_size: int | None, length_penalty: float | None, device: str
) -> tuple["Translator", "SearchConfig"]:
    """The translator of a model, and its search settings with what the user wants otherwise."""
    from mtcli.engines import open_translator

    translator, config = open_translator(model, device=device)
    wanted = {"beam_size": beam_size, "length_penalty": length_penalty}
    changes = {key: value for key, value in wanted.items() if value is not None}
    return translator, config.search.model_copy(update={"n_best": 1, **changes})


def _stdin() -> IO[bytes]:
    if sys.stdin is None:
        raise DataError("standard input is closed", hint="name a file, or pipe text in")
    return sys.stdin.buffer


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error


def main() -> None:
    """Run the command line."""
    app()

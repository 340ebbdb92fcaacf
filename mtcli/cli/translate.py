"""`mtcli translate`."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from mtcli.cli import options as given
from mtcli.cli.base import ModelDirectory, Quiet, app
from mtcli.errors import DataError
from mtcli.options import FORMATS, EngineOptions, Sampling, SearchOptions

if TYPE_CHECKING:
    from mtcli.stream import Formats, Input, Output
    from mtcli.translation import Translator


@app.command(epilog="Example: echo 'The old man sees a dog.' | mtcli translate runs/demo")
def translate(
    model: ModelDirectory,
    files: Annotated[
        list[Path], typer.Argument(metavar="[FILE]...", help="Default: standard input.")
    ] = [],
    output: given.Output = None,
    format_: given.Format = None,
    input_format: given.InputFormat = "text",
    field: given.Field = "text",
    prefix: given.Prefix = False,
    n_best: given.NBest = None,
    scores: given.Scores = False,
    alignment: given.Alignment = False,
    strict: given.Strict = False,
    beam_size: given.BeamSize = None,
    length_penalty: given.LengthPenalty = None,
    max_length: given.MaxLength = None,
    max_length_ratio: given.MaxLengthRatio = None,
    no_repeat_ngram: given.NoRepeatNgram = None,
    repetition_penalty: given.RepetitionPenalty = None,
    sampling: given.SamplingFlag = False,
    temperature: given.Temperature = None,
    top_k: given.TopK = None,
    top_p: given.TopP = None,
    seed: given.Seed = None,
    engine: given.EngineName = "auto",
    quantization: given.Quantization = None,
    shortlist: given.Shortlist = None,
    ensemble: given.Ensemble = [],
    threads: given.Threads = None,
    batch_tokens: given.BatchTokens = None,
    device: given.Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Translate text, line by line: one line out for every line in, in their order.

    A line ends at LF; a CR before it belongs to the line end and is dropped. On a terminal, without
    FILE, it asks.
    """
    from mtcli.stream import Formats
    from mtcli.translation import Translator

    is_asking = not files and output is None and _is_terminal()
    engine_options = EngineOptions(
        engine, device, quantization, threads, shortlist, seed=seed, is_interactive=is_asking
    )
    ways = _sampling(sampling, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    extras = scores or alignment or (n_best or 1) > 1
    formats = Formats(
        input_format,
        _output_format(format_, input_format, has_extras=extras, has_prefix=prefix),
        field,
        has_prefix=prefix,
        is_strict=strict,
        with_scores=scores,
        with_alignment=alignment,
        n_best=n_best or 1,
    )
    translator = Translator(
        model,
        engine=given.checked(engine_options),
        ensemble=ensemble,
        batch_tokens=batch_tokens,
    )
    options = _changed(
        translator.options,
        beam_size=beam_size,
        n_best=n_best or 1,
        length_penalty=length_penalty,
        max_length=max_length,
        max_length_ratio=max_length_ratio,
        no_repeat_ngram=no_repeat_ngram,
        repetition_penalty=repetition_penalty,
        sampling=ways,
        with_scores=scores,
        with_alignment=alignment,
    )
    if is_asking:
        from mtcli.cli.prompt import ask

        ask(translator, options)
    else:
        _translate_files(translator, files, output, options, formats, is_quiet=quiet)


def _translate_files(
    translator: "Translator",
    files: list[Path],
    output: Path | None,
    options: SearchOptions,
    formats: "Formats",
    *,
    is_quiet: bool,
) -> None:
    from mtcli.stream import Tally, translate_stream

    tally = Tally()
    with contextlib.ExitStack() as stack:
        inputs = [*_inputs(files, stack)]
        out = stack.enter_context(_output(output, files))
        for written in translate_stream(translator, inputs, options, formats):
            out.write(written.lines)
            tally += written.tally
    for notice in [] if is_quiet else tally.notices():
        typer.echo(f"note: {notice}", err=True)


def _output_format(
    wanted: str | None, input_format: str, *, has_extras: bool, has_prefix: bool
) -> str:
    given.check_name("format", wanted, FORMATS)
    given.check_name("input-format", input_format, FORMATS)
    if has_prefix and input_format == "text":
        raise typer.BadParameter("--prefix needs --input-format tsv or jsonl: where it would stand")
    if wanted == "text" and has_extras:
        raise typer.BadParameter(
            "--format text has room for one translation a line; "
            "for --n-best, --scores and --alignment use tsv or jsonl"
        )
    return wanted or ("tsv" if has_extras and input_format == "text" else input_format)


def _sampling(is_wanted: bool, **settings: Any) -> Sampling | None:
    named = {name: value for name, value in settings.items() if value is not None}
    if named and not is_wanted:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        raise typer.BadParameter(f"{names} only mean something with --sampling")
    named.pop("seed", None)  # which is the engine's
    return Sampling(**named) if is_wanted else None


def _changed(options: SearchOptions, **changes: Any) -> SearchOptions:
    """The model's own options, with what the user wants otherwise."""
    named = {name: value for name, value in changes.items() if value is not None}
    try:
        return replace(options, **named)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _inputs(files: Iterable[Path], stack: contextlib.ExitStack) -> Iterator["Input"]:
    from mtcli.stream import Input

    if not files:
        if sys.stdin is None:
            raise DataError("standard input is closed", hint="name a file, or pipe text in")
        yield Input(sys.stdin.buffer, "standard input")
    for file in files:
        yield Input(stack.enter_context(_open(file, "rb")), str(file))


def _output(path: Path | None, files: Iterable[Path]) -> "Output":
    from mtcli.stream import Output

    if path is None:
        return Output(sys.stdout.buffer)
    if path.exists() and any(path.samefile(file) for file in files):
        raise DataError(f"{path} is an input, too", hint="choose another --output")
    return Output(_open(path, "wb"), str(path))


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error

"""`mtcli translate`."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from mtcli.cli import options as given
from mtcli.cli.base import INTERRUPTED, ModelDirectory, Quiet, app
from mtcli.cli.progress import has_room_for_bar, progress_bar
from mtcli.errors import DataError, OptionsError
from mtcli.options import FORMATS, EngineOptions, Sampling, SearchOptions

if TYPE_CHECKING:
    from mtcli.stream import Formats, Input, Output
    from mtcli.translation import Translator


_STDIN = Path("-")


@app.command(epilog="Example: echo 'The old man sees a dog.' | mtcli translate runs/demo")
def translate(
    model: ModelDirectory,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[FILE]...",
            help="Files to translate; - is standard input.",
            show_default="standard input",
        ),
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
    """Translate text line by line: one output line for each input line, in the same order.

    A line ends at LF; a CR before it is dropped.
    On a terminal, without FILE and formats, mtcli shows a prompt.
    """
    from mtcli.translation import Translator

    engine_options = EngineOptions(
        engine=engine,
        device=device,
        quantization=quantization,
        threads=threads,
        shortlist=shortlist,
        seed=seed,
    )
    wanted: dict[str, Any] = {
        "beam_size": beam_size,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "max_length": max_length,
        "max_length_ratio": max_length_ratio,
        "no_repeat_ngram": no_repeat_ngram,
        "repetition_penalty": repetition_penalty,
        "with_scores": scores,
        "with_alignment": alignment,
    }
    draws = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if sampling:
        wanted["sampling"] = _sampling(draws, beam_size)
    else:
        _refuse_without_sampling({**draws, "seed": seed})
    reading = Reading(format_, input_format, field, has_prefix=prefix, is_strict=strict)
    reading.check(has_extras=scores or alignment or (n_best or 1) > 1)
    translator = Translator(
        model, engine=given.checked(engine_options), ensemble=ensemble, batch_tokens=batch_tokens
    )
    options = _changed(translator.options, wanted)
    translator.check(options)
    if not files and output is None and reading == Reading() and _is_terminal():
        from mtcli.cli.prompt import ask

        ask(translator, options)
        return
    with contextlib.ExitStack() as stack:
        inputs = [*_inputs(files, stack, is_patient=seed is not None)]
        out = stack.enter_context(_output(output, inputs))
        _translate(translator, inputs, out, options, reading.formats(options), is_quiet=quiet)


@dataclass(frozen=True)
class Reading:
    """Options for input and output."""

    format: str | None = None
    input_format: str = "text"
    field: str = "text"
    has_prefix: bool = False
    is_strict: bool = False

    def check(self, *, has_extras: bool) -> None:
        """Refuse contradictions before a model is loaded."""
        given.check_name("format", self.format, FORMATS)
        given.check_name("input-format", self.input_format, FORMATS)
        if self.has_prefix and self.input_format == "text":
            raise typer.BadParameter("--prefix requires --input-format tsv or jsonl")
        if self.format == "text" and has_extras:
            raise typer.BadParameter(
                "--n-best, --scores and --alignment require --format tsv or jsonl"
            )
        if self.field == "translation":
            raise typer.BadParameter("--field translation: the output uses this field")

    def formats(self, options: SearchOptions) -> "Formats":
        """Return how lines are read and written with these search options."""
        from mtcli.stream import Formats

        has_extras = options.with_scores or options.with_alignment or options.n_best > 1
        default = "tsv" if has_extras and self.input_format == "text" else self.input_format
        return Formats(
            self.input_format,
            self.format or default,
            self.field,
            has_prefix=self.has_prefix,
            is_strict=self.is_strict,
            with_scores=options.with_scores,
            with_alignment=options.with_alignment,
            n_best=options.n_best,
        )


def _translate(
    translator: "Translator",
    inputs: "list[Input]",
    out: "Output",
    options: SearchOptions,
    formats: "Formats",
    *,
    is_quiet: bool,
) -> None:
    from mtcli.stream import Progress, Tally, total_size, translate_stream

    files = [source.file for source in inputs]
    progress, tally = Progress(total_size(files)), Tally()
    has_bar = not is_quiet and has_room_for_bar(files, out.file)
    try:
        with progress_bar(progress, is_visible=has_bar):
            for written in translate_stream(translator, inputs, options, formats, progress):
                out.write(written.lines)
                tally += written.tally
    except KeyboardInterrupt:
        # Finished lines are written. A normal exit would wait for the engine's current batches.
        os._exit(INTERRUPTED)
    for notice in [] if is_quiet else tally.notices():
        typer.echo(f"note: {notice}", err=True)


def _sampling(draws: dict[str, Any], beam_size: int | None) -> Sampling:
    if beam_size is not None:
        raise typer.BadParameter("--sampling and --beam-size are exclusive")
    try:
        return Sampling(**{name: value for name, value in draws.items() if value is not None})
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error


def _refuse_without_sampling(settings: dict[str, Any]) -> None:
    names = [f"--{name.replace('_', '-')}" for name, value in settings.items() if value is not None]
    if names:
        raise typer.BadParameter(f"{', '.join(names)} requires --sampling")


def _changed(options: SearchOptions, wanted: dict[str, Any]) -> SearchOptions:
    """Return the model's options with the changes that the user asked for."""
    named = {name: value for name, value in wanted.items() if value is not None}
    if "beam_size" not in named:  # wide enough for n_best
        named["beam_size"] = max(options.beam_size, named.get("n_best", 1))
    try:
        return replace(options, **named)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _inputs(
    files: list[Path], stack: contextlib.ExitStack, *, is_patient: bool
) -> Iterator["Input"]:
    from mtcli.stream import Input

    for file in files or [_STDIN]:
        if file != _STDIN:
            yield Input(stack.enter_context(_open(file, "rb")), str(file), is_patient)
        elif sys.stdin is None:
            raise DataError(
                "standard input is closed", hint="name a file or pipe text to the command"
            )
        else:
            yield Input(sys.stdin.buffer, "standard input", is_patient)


def _output(path: Path | None, inputs: "Iterable[Input]") -> "Output":
    from mtcli.stream import Output

    if path is None:
        if sys.stdout is None:
            raise DataError("standard output is closed", hint="name a file with --output")
        return Output(sys.stdout.buffer)
    if any(_is_same(path, source.file) for source in inputs):
        raise DataError(f"{path} is also an input", hint="choose another --output")
    return Output(_open(path, "wb"), str(path))


def _is_same(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:  # not there yet, or not a file at all
        return False


def _open(path: Path, mode: str) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise DataError(
            f"cannot open {path}: {error.strerror}",
            hint="check the file name; to translate a sentence, pipe it to standard input",
        ) from error

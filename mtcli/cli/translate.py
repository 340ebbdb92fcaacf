"""`mtcli translate`: translate files, standard input, or lines typed at a prompt."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import INTERRUPTED, Command, ModelDirectory, Quiet, Tag, To, app
from mtcli.cli.line_files import open_file, open_output
from mtcli.cli.progress import can_show_bar, progress_bar
from mtcli.cli.usage import name_options_in_errors, reject_options
from mtcli.config.search import FORMATS, EngineOptions, Sampling, SearchOptions
from mtcli.errors import DataError

if TYPE_CHECKING:
    from mtcli.translation.formats import Formats
    from mtcli.translation.stream_io import Input, Output
    from mtcli.translation.translator import Translator

_STDIN = Path("-")


@app.command(
    cls=Command, epilog="Example: echo 'The old man sees a dog.' | mtcli translate runs/demo"
)
def translate(
    model: ModelDirectory,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="[FILE]...",
            help="Files to translate; - means standard input.",
            show_default="standard input",
        ),
    ] = [],
    output: opts.Output = None,
    format_: opts.Format = None,
    input_format: opts.InputFormat = "text",
    field: opts.Field = "text",
    prefix: opts.Prefix = False,
    to: To = None,
    tag: Tag = None,
    n_best: opts.NBest = None,
    scores: opts.Scores = False,
    alignment: opts.Alignment = False,
    strict: opts.Strict = False,
    quiet: Quiet = False,
    beam_size: opts.BeamSize = None,
    length_penalty: opts.LengthPenalty = None,
    max_length: opts.MaxLength = None,
    max_length_ratio: opts.MaxLengthRatio = None,
    no_repeat_ngram: opts.NoRepeatNgram = None,
    repetition_penalty: opts.RepetitionPenalty = None,
    sampling: opts.SamplingFlag = False,
    temperature: opts.Temperature = None,
    top_k: opts.TopK = None,
    top_p: opts.TopP = None,
    seed: opts.Seed = None,
    engine: opts.EngineName = "auto",
    quantization: opts.Quantization = None,
    shortlist: opts.Shortlist = None,
    ensemble: opts.Ensemble = [],
    threads: opts.Threads = None,
    batch_tokens: opts.BatchTokens = None,
    device: opts.Device = "auto",
) -> None:
    """Translate text line by line: one output line per input line, in the same order.

    A line ends at LF; a CR before the LF is removed.
    In a terminal, without FILE, --output or format options, mtcli opens a prompt.
    """
    from mtcli.translation.translator import Translator

    engine_options = EngineOptions(
        engine=engine,
        device=device,
        quantization=quantization,
        threads=threads,
        shortlist=shortlist,
        seed=seed,
    )
    search: dict[str, Any] = {
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
    sampling_options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if sampling:
        search["sampling"] = _sampling(sampling_options, beam_size)
    else:
        reject_options({**sampling_options, "seed": seed}, "--sampling")
    io_options = IoOptions(format_, input_format, field, has_prefix=prefix, is_strict=strict)
    io_options.check(has_extras=scores or alignment or (n_best or 1) > 1)
    opts.check_engine_options(engine_options)
    translator = Translator(
        model,
        engine=engine_options,
        ensemble=ensemble,
        batch_tokens=batch_tokens,
        to=to,
        tag=tag,
    )
    options = opts.override(translator.options, search)
    with name_options_in_errors([name for name, value in search.items() if value is not None]):
        translator.check(options)
    if not files and output is None and io_options == IoOptions() and _is_terminal():
        from mtcli.cli.prompt import run_prompt

        run_prompt(translator, options)
        return
    if input_format != "jsonl":  # jsonl lines can have their own target language
        translator.tags.symbols(to, tag)
    with contextlib.ExitStack() as stack:
        inputs = [*_inputs(files, stack, fill_batches=seed is not None)]
        out = stack.enter_context(open_output(output, [source.file for source in inputs]))
        formats = io_options.formats(options, translator)
        _translate(translator, inputs, out, options, formats, is_quiet=quiet)


@dataclass(frozen=True)
class IoOptions:
    """Options for input and output."""

    format: str | None = None
    input_format: str = "text"
    field: str = "text"
    has_prefix: bool = False
    is_strict: bool = False

    def check(self, *, has_extras: bool) -> None:
        """Raise `BadParameter` if a format is unknown or options contradict each other."""
        opts.check_choice("format", self.format, FORMATS)
        opts.check_choice("input-format", self.input_format, FORMATS)
        if self.has_prefix and self.input_format == "text":
            raise typer.BadParameter("--prefix requires --input-format tsv or jsonl")
        if self.format == "text" and has_extras:
            raise typer.BadParameter(
                "--n-best, --scores and --alignment require --format tsv or jsonl"
            )
        if self.field == "translation":
            raise typer.BadParameter(
                "--field cannot be translation: the output already has a field of this name"
            )

    def formats(self, options: SearchOptions, translator: "Translator") -> "Formats":
        """Return the input and output formats for these search options."""
        from mtcli.translation.formats import Formats

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
            tags=translator.tags,
            to=translator.to,
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
    from mtcli.translation.stream import LineCounts, Progress, total_size, translate_stream

    files = [source.file for source in inputs]
    progress, counts = Progress(total_size(files)), LineCounts()
    has_bar = not is_quiet and can_show_bar(files, out.file)
    try:
        with progress_bar(progress, is_visible=has_bar):
            for group in translate_stream(translator, inputs, options, formats, progress):
                out.write(group.lines)
                counts += group.counts
    except KeyboardInterrupt:
        # All finished lines have been written. A normal exit would wait for the current batches.
        os._exit(INTERRUPTED)
    for notice in [] if is_quiet else counts.notices():
        typer.echo(f"note: {notice}", err=True)


def _sampling(typed: dict[str, Any], beam_size: int | None) -> Sampling:
    if beam_size is not None:
        raise typer.BadParameter("--sampling and --beam-size are mutually exclusive")
    with name_options_in_errors(typed):
        return Sampling(**{name: value for name, value in typed.items() if value is not None})


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _inputs(
    files: list[Path], stack: contextlib.ExitStack, *, fill_batches: bool
) -> Iterator["Input"]:
    from mtcli.translation.stream_io import Input

    for file in files or [_STDIN]:
        if file != _STDIN:
            yield Input(stack.enter_context(open_file(file, "rb")), str(file), fill_batches)
        elif sys.stdin is None:
            raise DataError(
                "standard input is closed", hint="pass a file, or pipe text to the command"
            )
        else:
            yield Input(sys.stdin.buffer, "standard input", fill_batches)

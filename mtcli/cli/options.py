"""Options for the commands that run a model, with functions that check them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli.cli.base import INPUT_OUTPUT, threads_option
from mtcli.cli.completion import complete
from mtcli.cli.usage import name_options_in_errors
from mtcli.config.search import (
    ENGINES,
    FORMATS,
    QUANTIZATIONS,
    SAMPLING_LIMITS,
    SEARCH_LIMITS,
    EngineOptions,
    Sampling,
    SearchOptions,
)


def format_choices(names: Sequence[str]) -> str:
    """Return `names` as text, such as "a, b or c"."""
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


_SEARCH, ENGINE = "Search", "Engine"
_FROM_MODEL = "from the model"
_LIMITS = {**SEARCH_LIMITS, **SAMPLING_LIMITS}  # also checked in config/search.py
LENGTH_PENALTY_HELP = (
    "Exponent of the length in the score; higher values favor longer translations."
)
QUANTIZATION_HELP = f"Weight type for CTranslate2: {format_choices(QUANTIZATIONS)}."

Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the translations to this file.",
        show_default="standard output",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Output format: {format_choices(FORMATS)}; "
        "tsv and jsonl keep other columns or fields if the input has the same format.",
        show_default="the input format; tsv for text input with --n-best, --scores or --alignment",
        autocompletion=complete(FORMATS),
        rich_help_panel=INPUT_OUTPUT,
    ),
]
InputFormat = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Input format: {format_choices(FORMATS)}.",
        autocompletion=complete(FORMATS),
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Field = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="JSON field to translate (jsonl).", rich_help_panel=INPUT_OUTPUT
    ),
]
Prefix = Annotated[
    bool,
    typer.Option(
        "--prefix",
        help="Start each translation with the `prefix` field (jsonl) or the second column (tsv).",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
NBest = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["n_best"].low,
        max=_LIMITS["n_best"].high,
        help="Number of translations per line, best first.",
        show_default=_FROM_MODEL,
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Scores = Annotated[
    bool,
    typer.Option(
        "--scores",
        help="Add the score: log-probability / length**length_penalty.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Alignment = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Add the word alignment, such as 0-0 1-2.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Report invalid UTF-8 as an error instead of replacing it.",
        rich_help_panel=INPUT_OUTPUT,
    ),
]

BeamSize = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["beam_size"].low,
        max=_LIMITS["beam_size"].high,
        help="Beam size; 1 is greedy search.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=_LIMITS["length_penalty"].low,
        max=_LIMITS["length_penalty"].high,
        help=LENGTH_PENALTY_HELP,
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["max_length"].low,
        help="Maximum length of a translation, in pieces.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
MaxLengthRatio = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=_LIMITS["max_length_ratio"].low,
        max=_LIMITS["max_length_ratio"].high,
        help="Maximum length of a translation, as a multiple of the source length.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["no_repeat_ngram"].low,
        help="Never repeat a sequence of N pieces; 0 allows repeats.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=_LIMITS["repetition_penalty"].low,
        max=_LIMITS["repetition_penalty"].high,
        help="Penalty for repeated pieces; 1 disables it.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
SamplingFlag = Annotated[
    bool,
    typer.Option(
        "--sampling",
        help="Sample translations instead of using beam search.",
        rich_help_panel=_SEARCH,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=_LIMITS["temperature"].low,
        max=_LIMITS["temperature"].high,
        help="Sampling temperature; lower values make likely pieces more likely.",
        show_default=f"{Sampling().temperature:g}",
        rich_help_panel=_SEARCH,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        min=_LIMITS["top_k"].low,
        help="Sample from the K most likely pieces; 0 means all pieces.",
        show_default=f"{Sampling().top_k}",
        rich_help_panel=_SEARCH,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        min=_LIMITS["top_p"].low,
        max=_LIMITS["top_p"].high,
        help="Sample from the most likely pieces whose total probability reaches P.",
        show_default=f"{Sampling().top_p:g}",
        rich_help_panel=_SEARCH,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=2**32 - 1,
        help="Sampling seed; the same seed, input and options give the same samples.",
        show_default="random",
        rich_help_panel=_SEARCH,
    ),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help=f"Engine: {format_choices(ENGINES)}; auto uses CTranslate2 if it can run the model.",
        autocompletion=complete(ENGINES),
        rich_help_panel=ENGINE,
    ),
]
Quantization = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=QUANTIZATION_HELP,
        autocompletion=complete(QUANTIZATIONS),
        show_default="int8 on CPU, float16 on GPU",
        rich_help_panel=ENGINE,
    ),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="Restrict the output to likely translations of the source pieces (CTranslate2).",
        show_default=_FROM_MODEL,
        rich_help_panel=ENGINE,
    ),
]
Ensemble = Annotated[
    list[Path],
    typer.Option(
        metavar="MODEL",
        help="Additional model for an ensemble (torch engine); repeatable.",
        show_default="none",
        rich_help_panel=ENGINE,
    ),
]
Threads = Annotated[int | None, threads_option(ENGINE)]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Batch size in source positions, including padding.",
        show_default="chosen by the engine",
        rich_help_panel=ENGINE,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Device: auto, cpu, cuda or cuda:N.",
        autocompletion=complete(("auto", "cpu", "cuda")),
        rich_help_panel=ENGINE,
    ),
]


def check_choice(option: str, value: str | None, known: tuple[str, ...]) -> None:
    """Raise `BadParameter` if `value` is neither None nor in `known`."""
    if value is not None and value not in known:
        raise typer.BadParameter(f"--{option} {value}: must be one of {', '.join(known)}")


def check_engine_options(options: EngineOptions) -> None:
    """Raise `BadParameter` if the engine or the quantization is unknown."""
    check_choice("engine", options.engine, ENGINES)
    check_choice("quantization", options.quantization, QUANTIZATIONS)


def override(options: SearchOptions, typed: Mapping[str, Any]) -> SearchOptions:
    """Return `options` with the values in `typed` that the user has set (not None)."""
    changes = {name: value for name, value in typed.items() if value is not None}
    with name_options_in_errors(changes):
        # Unless the user typed a beam size, make it large enough for n_best.
        beam_size = max(options.beam_size, changes.get("n_best", 1))
        return replace(options, **{"beam_size": beam_size, **changes})

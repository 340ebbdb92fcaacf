"""Options of the commands that translate: the same option has the same text everywhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mtcli.options import (
    ENGINES,
    FORMATS,
    QUANTIZATIONS,
    SAMPLING_LIMITS,
    SEARCH_LIMITS,
    EngineOptions,
    Sampling,
)


def choices(names: Sequence[str]) -> str:
    """Return names as text: "a, b or c"."""
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


INPUT_OUTPUT = "Input and output"
_SEARCH = "Search"
_ENGINE = "Engine"
_FROM_MODEL = "from the model"
_LIMITS = {**SEARCH_LIMITS, **SAMPLING_LIMITS}  # those without a max here are checked later
QUANTIZATION_HELP = f"Weight type of CTranslate2: {choices(QUANTIZATIONS)}."

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
        help=f"Output format: {choices(FORMATS)}; "
        "tsv and jsonl keep the other columns and fields of the same input format.",
        show_default="the input format; tsv if text is not enough",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
InputFormat = Annotated[
    str,
    typer.Option(
        metavar="NAME", help=f"Input format: {choices(FORMATS)}.", rich_help_panel=INPUT_OUTPUT
    ),
]
Field = Annotated[
    str,
    typer.Option(metavar="NAME", help="Field to translate (jsonl).", rich_help_panel=INPUT_OUTPUT),
]
Prefix = Annotated[
    bool,
    typer.Option(
        "--prefix",
        help="Start each translation with the field `prefix` (jsonl) or the second column (tsv).",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
NBest = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["n_best"].low,
        max=_LIMITS["n_best"].high,
        help="Translations per line, best first.",
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
        help="Hypotheses kept at each step; 1 is greedy search.",
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
        help="Exponent of the length in the score; higher values favor longer output.",
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
        help="Maximum length in pieces per source piece, rounded up to a multiple of 8.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=_LIMITS["no_repeat_ngram"].low,
        help="Never repeat a sequence of N pieces; 0 disables it.",
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
        help="Penalty for repeated tokens; 1 disables it.",
        show_default=_FROM_MODEL,
        rich_help_panel=_SEARCH,
    ),
]
SamplingFlag = Annotated[
    bool,
    typer.Option(
        "--sampling", help="Sample at random instead of searching.", rich_help_panel=_SEARCH
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
        help="Sample from the K most likely pieces; 0 uses all.",
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
        help="Sample from the most likely pieces with total probability P.",
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
        help=f"Engine: {choices(ENGINES)}; auto uses CTranslate2 if it can run the model.",
        rich_help_panel=_ENGINE,
    ),
]
Quantization = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=QUANTIZATION_HELP,
        show_default="int8 on CPU, float16 on GPU",
        rich_help_panel=_ENGINE,
    ),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="Consider only likely translations of the source pieces (CTranslate2).",
        show_default=_FROM_MODEL,
        rich_help_panel=_ENGINE,
    ),
]
Ensemble = Annotated[
    list[Path],
    typer.Option(
        metavar="MODEL",
        help="Additional ensemble model (torch engine). Repeatable.",
        show_default="none",
        rich_help_panel=_ENGINE,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=256,
        help="CPU threads.",
        show_default="one per core",
        rich_help_panel=_ENGINE,
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Batch size in source positions, padding included.",
        show_default="from the engine",
        rich_help_panel=_ENGINE,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Device: auto, cpu, cuda or cuda:N.", rich_help_panel=_ENGINE
    ),
]


def check_name(option: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuse a value that is not in the list."""
    if value is not None and value not in known:
        raise typer.BadParameter(f"--{option} {value}: must be one of {', '.join(known)}")


def checked(options: EngineOptions) -> EngineOptions:
    """Return `options` if their names are known."""
    check_name("engine", options.engine, ENGINES)
    check_name("quantization", options.quantization, QUANTIZATIONS)
    return options

"""The options of translating, for every command that translates."""

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
)

_READS = "Input and output"
_FINDS = "Search"
_RUNS = "Engine"
_FORMAT = "|".join(FORMATS)
_LIMITS = {**SEARCH_LIMITS, **SAMPLING_LIMITS}  # those without a max here are checked later

Output = Annotated[
    Path | None, typer.Option(help="Default: standard output.", rich_help_panel=_READS)
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar=_FORMAT,
        help="Of the output; default: that of the input, or tsv if there is more than text. "
        "Other columns of tsv and fields of jsonl pass on to the same format.",
        rich_help_panel=_READS,
    ),
]
InputFormat = Annotated[
    str, typer.Option(metavar=_FORMAT, help="Of the input.", rich_help_panel=_READS)
]
Field = Annotated[str, typer.Option(help="jsonl: the field to translate.", rich_help_panel=_READS)]
Prefix = Annotated[
    bool,
    typer.Option(
        "--prefix",
        help="Begin each translation with the field `prefix` (jsonl) or the second column (tsv).",
        rich_help_panel=_READS,
    ),
]
NBest = Annotated[
    int | None,
    typer.Option(
        min=_LIMITS["n_best"].low,
        max=_LIMITS["n_best"].high,
        help="Translations of each line, best first.",
        rich_help_panel=_READS,
    ),
]
Scores = Annotated[
    bool,
    typer.Option(
        "--scores", help="Log-probability / length**length_penalty.", rich_help_panel=_READS
    ),
]
Alignment = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Source and target words that belong together: 0-0 1-2 ...",
        rich_help_panel=_READS,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Invalid UTF-8 is an error; otherwise it is replaced and counted.",
        rich_help_panel=_READS,
    ),
]

BeamSize = Annotated[
    int | None,
    typer.Option(
        min=_LIMITS["beam_size"].low,
        max=_LIMITS["beam_size"].high,
        help="Hypotheses kept at each step; default: the model's.",
        rich_help_panel=_FINDS,
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        min=_LIMITS["length_penalty"].low,
        max=_LIMITS["length_penalty"].high,
        help="Above 0 favours longer output; default: the model's.",
        rich_help_panel=_FINDS,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=_LIMITS["max_length"].low,
        help="Longest translation, in pieces.",
        rich_help_panel=_FINDS,
    ),
]
MaxLengthRatio = Annotated[
    float | None,
    typer.Option(
        min=_LIMITS["max_length_ratio"].low,
        max=_LIMITS["max_length_ratio"].high,
        help="Longest translation, in pieces per source piece (rounded up to eights).",
        rich_help_panel=_FINDS,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        min=_LIMITS["no_repeat_ngram"].low,
        help="No sequence of N pieces comes twice.",
        rich_help_panel=_FINDS,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        min=_LIMITS["repetition_penalty"].low,
        max=_LIMITS["repetition_penalty"].high,
        help="Above 1, what was said becomes less likely.",
        rich_help_panel=_FINDS,
    ),
]
SamplingFlag = Annotated[
    bool,
    typer.Option("--sampling", help="Draw at random instead of searching.", rich_help_panel=_FINDS),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=_LIMITS["temperature"].low,
        max=_LIMITS["temperature"].high,
        help="Sampling: below 1 safer, above wilder.",
        rich_help_panel=_FINDS,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        min=_LIMITS["top_k"].low,
        help="Sampling: from the K likeliest pieces.",
        rich_help_panel=_FINDS,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        min=_LIMITS["top_p"].low,
        max=_LIMITS["top_p"].high,
        help="Sampling: from the likeliest that sum to P.",
        rich_help_panel=_FINDS,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**32 - 1,
        help="Sampling: same file, same options, same samples.",
        rich_help_panel=_FINDS,
    ),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="|".join(ENGINES),
        help="auto: CTranslate2 if it can run the model.",
        rich_help_panel=_RUNS,
    ),
]
Quantization = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(QUANTIZATIONS),
        help="CTranslate2: default int8 on a CPU, float16 on a GPU.",
        rich_help_panel=_RUNS,
    ),
]
Shortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="CTranslate2: only pieces that may translate the source; default: if that was "
        "worth it on the dev set.",
        rich_help_panel=_RUNS,
    ),
]
Ensemble = Annotated[
    list[Path],
    typer.Option(
        metavar="MODEL", help="torch: a further model that votes; repeat it.", rich_help_panel=_RUNS
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Default: one for each core.", rich_help_panel=_RUNS),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Source positions of a batch, padding included.", rich_help_panel=_RUNS
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...", rich_help_panel=_RUNS)]


def check_name(option: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuse what is not in the list."""
    if value is not None and value not in known:
        raise typer.BadParameter(f"--{option} {value}: must be one of {', '.join(known)}")


def checked(options: EngineOptions) -> EngineOptions:
    """`options`, if their names are known."""
    check_name("engine", options.engine, ENGINES)
    check_name("quantization", options.quantization, QUANTIZATIONS)
    return options

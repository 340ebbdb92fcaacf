"""Options of `mtcli evaluate` for test sets, metrics, analysis and significance tests."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.base import INPUT_OUTPUT
from mtcli.cli.completion import complete
from mtcli.cli.options import format_choices
from mtcli.config.metrics import (
    BLEU_TOKENIZERS,
    DEFAULT_METRICS,
    DEFAULT_RESAMPLES,
    DEFAULT_SHUFFLES,
    METRIC_LIMITS,
    METRIC_NAMES,
    SMOOTH_METHODS,
    TEST_METHODS,
)

RESULT_FORMATS = ("text", "latex", "markdown", "json")
TEST_SET = "Test set"
METRICS = "Metrics"
COMPARISON = "Comparison"
ANALYSIS = "Analysis"

Hypothesis = Annotated[
    list[Path],
    typer.Option(
        metavar="FILE",
        help="File with translations to score; repeat the option to compare files with the first.",
        show_default="translate SOURCE with MODEL",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
SourceFile = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="FILE",
        help="Source of the translations, for --report and --analysis (only with --hypothesis).",
        show_default="none",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
Compare = Annotated[
    list[Path],
    typer.Option(
        metavar="MODEL",
        help="Another model to compare with MODEL; repeatable.",
        show_default="none",
        rich_help_panel=COMPARISON,
    ),
]
AnalysisFlag = Annotated[
    bool,
    typer.Option(
        "--analysis",
        help="Add tables of problems, missing numbers and names, and scores by sentence length and "
        "word frequency.",
        rich_help_panel=ANALYSIS,
    ),
]
TrainCorpora = Annotated[
    list[str],
    typer.Option(
        "--train-corpus",
        metavar="NAME",
        help="Training corpus for word frequencies and exact matches, such as 'train.{en,de}' or "
        "train.tsv; repeatable.",
        show_default="word counts saved with the model",
        rich_help_panel=ANALYSIS,
    ),
]
Outputs = Annotated[
    list[Path],
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the translations to this file; repeatable, once for each model.",
        show_default="not written",
        rich_help_panel=INPUT_OUTPUT,
    ),
]
ResultFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Output format: {format_choices(RESULT_FORMATS)}.",
        show_default="text",
        autocompletion=complete(RESULT_FORMATS),
        rich_help_panel=INPUT_OUTPUT,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=INPUT_OUTPUT)]

TestSetName = Annotated[
    str | None,
    typer.Option(
        "--test-set",
        metavar="NAME",
        help="Test set from sacreBLEU, such as wmt14/full, instead of SOURCE and REFERENCE.",
        show_default="the given files",
        rich_help_panel=TEST_SET,
    ),
]
Pair = Annotated[
    str | None,
    typer.Option(
        metavar="PAIR",
        help="Language pair of --test-set, such as en-de.",
        show_default="the languages of the model",
        rich_help_panel=TEST_SET,
    ),
]
OrigLang = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Use only the documents of --test-set that were originally written in this language, "
        "such as de; non-de excludes them.",
        show_default="all documents",
        rich_help_panel=TEST_SET,
    ),
]
Subset = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Use only the documents of --test-set whose domain matches this regular expression.",
        show_default="all documents",
        rich_help_panel=TEST_SET,
    ),
]

MetricNames = Annotated[
    list[str],
    typer.Option(
        "--metric",
        metavar="NAME",
        help=f"Metric: {format_choices(METRIC_NAMES)}; repeatable.",
        show_default=" and ".join(DEFAULT_METRICS),
        autocompletion=complete(METRIC_NAMES),
        rich_help_panel=METRICS,
    ),
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"BLEU tokenizer: {format_choices(BLEU_TOKENIZERS)}.",
        show_default="depends on the target language",
        autocompletion=complete(BLEU_TOKENIZERS),
        rich_help_panel=METRICS,
    ),
]
Lowercase = Annotated[
    bool,
    typer.Option(
        "--lowercase",
        help="Ignore case in BLEU and chrF; TER ignores it by default.",
        rich_help_panel=METRICS,
    ),
]
SmoothMethod = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"BLEU smoothing method: {format_choices(SMOOTH_METHODS)}.",
        autocompletion=complete(SMOOTH_METHODS),
        rich_help_panel=METRICS,
    ),
]
SmoothValue = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=METRIC_LIMITS["smooth_value"].low,
        max=METRIC_LIMITS["smooth_value"].high,
        help="Smoothing value for the methods floor and add-k.",
        show_default="0.1 for floor, 1 for add-k",
        rich_help_panel=METRICS,
    ),
]
CharOrder = Annotated[
    int,
    typer.Option(
        "--chrf-char-order",
        metavar="N",
        min=METRIC_LIMITS["chrf_char_order"].low,
        max=METRIC_LIMITS["chrf_char_order"].high,
        help="Maximum length of character n-grams in chrF.",
        rich_help_panel=METRICS,
    ),
]
WordOrder = Annotated[
    int,
    typer.Option(
        "--chrf-word-order",
        metavar="N",
        min=METRIC_LIMITS["chrf_word_order"].low,
        max=METRIC_LIMITS["chrf_word_order"].high,
        help="Maximum length of word n-grams in chrF; always 2 in chrF++.",
        show_default="0",
        rich_help_panel=METRICS,
    ),
]
Beta = Annotated[
    int,
    typer.Option(
        "--chrf-beta",
        metavar="N",
        min=METRIC_LIMITS["chrf_beta"].low,
        max=METRIC_LIMITS["chrf_beta"].high,
        help="Weight of recall relative to precision in chrF.",
        rich_help_panel=METRICS,
    ),
]
Whitespace = Annotated[
    bool,
    typer.Option(
        "--chrf-whitespace",
        help="Include whitespace in the character n-grams of chrF.",
        rich_help_panel=METRICS,
    ),
]
EpsSmoothing = Annotated[
    bool,
    typer.Option(
        "--chrf-eps-smoothing",
        help="Use epsilon smoothing in chrF, as chrF++.py, NLTK and Moses do.",
        rich_help_panel=METRICS,
    ),
]
TerCaseSensitive = Annotated[
    bool,
    typer.Option("--ter-case-sensitive", help="Make TER case-sensitive.", rich_help_panel=METRICS),
]
TerAsianSupport = Annotated[
    bool,
    typer.Option(
        "--ter-asian-support",
        help="Split Chinese, Japanese and Korean text into characters (with --ter-normalized).",
        rich_help_panel=METRICS,
    ),
]
TerNoPunct = Annotated[
    bool,
    typer.Option(
        "--ter-no-punct",
        help="Remove punctuation before computing TER.",
        rich_help_panel=METRICS,
    ),
]
TerNormalized = Annotated[
    bool,
    typer.Option(
        "--ter-normalized",
        help="Normalize and tokenize the text before computing TER.",
        rich_help_panel=METRICS,
    ),
]
Resamples = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=METRIC_LIMITS["resamples"].low,
        max=METRIC_LIMITS["resamples"].high,
        help="Number of bootstrap resamples for confidence intervals; 0 disables the intervals.",
        rich_help_panel=METRICS,
    ),
]

TestMethod = Annotated[
    str,
    typer.Option(
        "--test",
        metavar="NAME",
        help=f"Paired significance test: {format_choices(TEST_METHODS)}.",
        autocompletion=complete(TEST_METHODS),
        rich_help_panel=COMPARISON,
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=METRIC_LIMITS["trials"].low,
        max=METRIC_LIMITS["trials"].high,
        help="Number of trials in the significance test.",
        show_default=f"{DEFAULT_RESAMPLES:,} for bootstrap, {DEFAULT_SHUFFLES:,} for randomization",
        rich_help_panel=COMPARISON,
    ),
]
ResamplingSeed = Annotated[
    int,
    typer.Option(
        "--resampling-seed",
        metavar="N",
        min=METRIC_LIMITS["seed"].low,
        max=METRIC_LIMITS["seed"].high,
        help="Seed for confidence intervals and significance tests.",
        rich_help_panel=COMPARISON,
    ),
]

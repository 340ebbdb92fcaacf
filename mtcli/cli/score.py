"""`mtcli score`: compute the probability that a model assigns to given translations."""

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli.base import (
    INPUT_OUTPUT,
    INTERRUPTED,
    Command,
    ModelDirectory,
    Quiet,
    SourceLang,
    Tag,
    TargetLang,
    To,
    app,
)
from mtcli.cli.completion import complete
from mtcli.cli.line_files import open_output
from mtcli.cli.progress import can_show_bar, progress_bar
from mtcli.cli.usage import name_options_in_errors
from mtcli.config.search import FORMATS, EngineOptions

if TYPE_CHECKING:
    from mtcli.data.corpus import Notify
    from mtcli.data.formats.base import Languages, OpenedCorpus
    from mtcli.translation.score_formats import ScoreFormat
    from mtcli.translation.scoring import Pair, PairScorer, ScoredGroup, ScoreTotals
    from mtcli.translation.stream_io import Output

_SCORE = "Score"


@app.command(
    cls=Command, epilog="Example: mtcli score runs/demo data/demo/test.en data/demo/test.de"
)
def score(
    model: ModelDirectory,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE TARGET",
            help="Source and target files, or one corpus in another format, such as pairs.tsv.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the scores to this file.",
            show_default="standard output",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Output format: text (scores), tsv or jsonl (also length, source and target).",
            autocompletion=complete(FORMATS),
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = "text",
    token_scores: Annotated[
        bool,
        typer.Option(
            "--token-scores",
            help="Add the pieces of the target and their log-probabilities (tsv, jsonl).",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    totals: Annotated[
        bool,
        typer.Option(
            "--totals",
            help="Print only the totals, such as the log-probability and the perplexity.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    to: To = None,
    tag: Tag = None,
    quiet: Quiet = False,
    length_penalty: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0,
            max=10,
            help=opts.LENGTH_PENALTY_HELP,
            show_default="0: the score is the log-probability",
            rich_help_panel=_SCORE,
        ),
    ] = 0.0,
    max_pieces: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum length of each side in pieces; longer pairs get the score -inf.",
            show_default="search.max_length of the model",
            rich_help_panel=_SCORE,
        ),
    ] = None,
    engine: opts.EngineName = "auto",
    quantization: opts.Quantization = None,
    ensemble: opts.Ensemble = [],
    threads: opts.Threads = None,
    device: opts.Device = "auto",
) -> None:
    """Compute the log-probability of given translations: one output line per pair.

    By default, a score is the sum of the log-probabilities (natural logarithm)
    of all target tokens, including EOS. The totals, which include the
    perplexity, are printed to standard error.
    """
    from mtcli.data.formats import open_corpus
    from mtcli.translation.engines import open_engine
    from mtcli.translation.score_formats import ScoreFormat, format_totals, notices, totals_to_json
    from mtcli.translation.scoring import PairScorer

    if len(files) > 2:
        raise typer.BadParameter("expected MODEL SOURCE TARGET or MODEL CORPUS")
    opts.check_choice("format", format_, FORMATS)
    if token_scores and format_ == "text":
        raise typer.BadParameter("--token-scores requires --format tsv or jsonl")
    engine_options = EngineOptions(
        engine=engine, device=device, quantization=quantization, threads=threads, shortlist=False
    )
    opts.check_engine_options(engine_options)
    corpus = open_corpus(files, _languages(model, source_lang, target_lang or to))
    notify = _ignore if quiet else functools.partial(typer.echo, err=True)
    with name_options_in_errors(["max_pieces"]):
        loaded = open_engine(model, engine_options, ensemble)
        scorer = PairScorer(loaded, max_pieces=max_pieces, to=to, tag=tag)
    with open_output(output, corpus.files) as out:
        lines = _OutputLines(
            out, ScoreFormat(format_, length_penalty, with_tokens=token_scores), only_totals=totals
        )
        total = _score(scorer, _pairs(corpus, notify), lines, has_bar=_has_bar(files, out, quiet))
        if totals:
            out.write([totals_to_json(total) if format_ == "jsonl" else format_totals(total)])
    for notice in notices(total, scorer.max_pieces):
        notify(f"note: {notice}")
    if not totals:
        notify(format_totals(total))


def _ignore(_: str) -> None:
    """Ignore a message."""


def _languages(model: Path, source_lang: str | None, target_lang: str | None) -> "Languages":
    """Return the languages that the user specifies, or else those of the model."""
    from mtcli.data.formats.base import Languages
    from mtcli.model_dir.saved_tree import saved_languages

    saved = saved_languages(model)
    return Languages(source_lang or saved.source, target_lang or saved.target)


@dataclass(frozen=True)
class _OutputLines:
    """Writer of formatted pairs; it writes nothing if the user wants only the totals."""

    out: "Output"
    format: "ScoreFormat"
    only_totals: bool

    def write(self, group: "ScoredGroup") -> None:
        """Write one line per pair."""
        if not self.only_totals:
            pairs = zip(group.pairs, group.scores, strict=True)
            self.out.write([self.format.format_line(*pair) for pair in pairs])


def _score(
    scorer: "PairScorer", pairs: "Iterable[Pair]", lines: _OutputLines, *, has_bar: bool
) -> "ScoreTotals":
    """Score all pairs, write them to `lines`, and return the totals."""
    from mtcli.translation.scoring import ScoreTotals, score_stream, total_scores
    from mtcli.translation.stream import Progress

    progress, totals = Progress(), ScoreTotals()
    try:
        with progress_bar(progress, is_visible=has_bar):
            for group in score_stream(scorer, pairs, progress.advance):
                lines.write(group)
                totals += total_scores(group.pairs, group.scores)
    except KeyboardInterrupt:
        # All finished lines have been written. A normal exit would wait for the current batches.
        os._exit(INTERRUPTED)
    return totals


def _pairs(corpus: "OpenedCorpus", notify: "Notify") -> "Iterator[Pair]":
    """Yield the pairs of a corpus, with the first reference if there are several."""
    from mtcli.translation.scoring import Pair

    has_warned = False
    for source, target, *others in corpus.rows:
        if others and not has_warned:
            notify(f"note: scoring only the first of {1 + len(others)} references")
            has_warned = True
        yield Pair(source, target)


def _has_bar(files: list[str], out: "Output", quiet: bool) -> bool:
    inputs = [sys.stdin.buffer] if "-" in files and sys.stdin else []
    return not quiet and can_show_bar(inputs, out.file)

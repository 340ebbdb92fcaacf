"""`mtcli check`: find problems in a corpus and write a cleaned copy."""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli.base import INPUT_OUTPUT, Command, Quiet, SourceLang, TargetLang, app
from mtcli.cli.corpora import parse_corpus
from mtcli.cli.metric_options import AsJson
from mtcli.cli.report_options import Report
from mtcli.counts import format_count
from mtcli.errors import MtcliError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtcli.data.quality.analysis import OnProgress
    from mtcli.data.quality.findings import CheckResult, FixResult

PROBLEMS_FOUND = 3  # exit code


@app.command(cls=Command, epilog="Example: mtcli check data/demo/train.en data/demo/train.de")
def check(
    corpus: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE TARGET | CORPUS",
            help="Two line-aligned text files, or one corpus in another format, such as "
            "train.tsv.gz, memory.tmx or hf:wmt/wmt14/de-en.",
        ),
    ],
    against: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Test set in any format, such as 'test.{en,de}', that must not overlap with the "
            "corpus; repeatable.",
            show_default="none",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = [],
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME",
            help="Write a cleaned copy and a list of the removed pairs to new files whose names "
            "start with NAME.",
            show_default="not written",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    report: Report = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find problems in a corpus: misaligned lines, duplicates, wrong languages and more.

    The exit code is 0 if mtcli finds no problems and 3 if it finds any.
    """
    from mtcli.config.corpora import CorpusSource
    from mtcli.data.entries import find_languages
    from mtcli.data.formats.base import Languages
    from mtcli.data.quality.check import check_corpus
    from mtcli.data.quality.fix import fix_corpus, output_files
    from mtcli.data.quality.report import check_page
    from mtcli.reporting.pages import check_page_path, write_page

    if len(corpus) > 2:
        raise typer.BadParameter("expected SOURCE TARGET or CORPUS")
    if any(not isinstance(parse_corpus(name), str) for name in corpus):
        raise typer.BadParameter(
            "mtcli check has no corpus options: pass only file names or the name of a corpus"
        )
    languages = Languages(source_lang, target_lang)
    if report:
        check_page_path(report)
    if fix:
        # If the output files exist or have invalid names, fail before the slow check of the corpus.
        output_files(fix, find_languages(CorpusSource.parse(corpus), languages))
    with _progress(is_visible=not quiet) as on_progress:
        checked = check_corpus(
            corpus,
            against=[[name] for name in against],
            languages=languages,
            on_progress=on_progress,
        )
        fixed, failure = None, None
        if fix:
            try:
                fixed = fix_corpus(checked, fix, on_progress)
            except MtcliError as error:
                failure = error  # raised after the findings are printed
    result = checked.result
    if report:
        write_page(report, check_page(result))
    _print_result(result, fixed, as_json=as_json)
    if failure:
        raise failure
    if result.problems:
        raise typer.Exit(code=PROBLEMS_FOUND)


def _print_result(result: "CheckResult", fixed: "FixResult | None", *, as_json: bool) -> None:
    """Print the findings and, if there is a cleaned copy, the names of its files."""
    from mtcli.data.quality.text import format_fix, format_result

    if as_json:
        values = {**result.to_dict(), **({"fix": fixed.to_dict()} if fixed else {})}
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
        return
    typer.echo(format_result(result))
    if fixed:
        typer.echo(format_fix(fixed))


@contextmanager
def _progress(*, is_visible: bool) -> "Iterator[OnProgress]":
    """Run the block with a status line if stderr is a terminal; yield a function to update it."""
    if not (is_visible and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        yield lambda *_: None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:

        def update(activity: str, n_pairs: int, share: float | None) -> None:
            done = f": {format_count(n_pairs, 'pair')}" if n_pairs else ""
            status.update(f"{activity}{done}{f', {share:.0%}' if share else ''}")

        yield update

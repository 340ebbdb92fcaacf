"""Functions that write the reports of `mtcli evaluate` and `mtcli compare`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mtcli.config.report import ReportOptions
from mtcli.counts import format_count
from mtcli.evaluation.report import ReportContent, evaluation_page
from mtcli.evaluation.report_maps import choose_map_lines, describe_choice, trace_maps
from mtcli.evaluation.request import EvaluationRequest, open_translator
from mtcli.evaluation.results import Evaluation
from mtcli.evaluation.run_comparison import RunComparison, runs_table
from mtcli.evaluation.sentences import score_sentences
from mtcli.reporting.pages import write_page


def write_report(
    evaluation: Evaluation,
    request: EvaluationRequest,
    options: ReportOptions,
    notify: Callable[[str], None] = lambda _: None,
) -> None:
    """Write an evaluation report, with attention maps if models translated the test set."""
    content = _sentence_content(evaluation, request, options, notify)
    write_page(options.path, evaluation_page(evaluation, request.metrics, content))
    notify(f"report: {options.path}")


def write_comparison(
    comparison: RunComparison,
    request: EvaluationRequest,
    options: ReportOptions,
    notify: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a report that compares runs."""
    evaluation = comparison.evaluation
    content = replace(
        _sentence_content(evaluation, request, options, notify),
        title="Comparison of runs",
        runs=runs_table(comparison),
    )
    write_page(options.path, evaluation_page(evaluation, request.metrics, content))
    notify(f"report: {options.path}")


def _sentence_content(
    evaluation: Evaluation,
    request: EvaluationRequest,
    options: ReportOptions,
    notify: Callable[[str], None],
) -> ReportContent:
    """Return the sentence scores and, if there are any, the attention maps for a report."""
    scores = score_sentences(evaluation)
    lines = _choose_lines(evaluation, scores, options, notify)
    models = request.models if lines else ()
    translators = {i: open_translator(model, request) for i, model in enumerate(models)}
    traced = trace_maps(evaluation, translators, lines, notify)
    if not traced.maps:
        return ReportContent(scores)
    if options.map_lines:
        rule = f"Lines with attention maps: {len(traced.maps):,}, selected with --map-line."
    else:
        rule = describe_choice(len(traced.maps), is_comparison=len(scores) > 1)
    return ReportContent(scores, traced.maps, f"{rule} {traced.describe_detail()}".strip())


def _choose_lines(
    evaluation: Evaluation,
    scores: Sequence[Sequence[float]],
    options: ReportOptions,
    notify: Callable[[str], None],
) -> list[int]:
    """Return the indexes of the lines for attention maps: those of --map-line, or chosen ones."""
    n = len(evaluation.test_set)
    if not options.map_lines:
        return choose_map_lines(evaluation, scores, options.n_maps)
    for number in options.map_lines:
        if number > n:
            size = format_count(n, "line")
            notify(f"warning: ignoring --map-line {number}: the test set has {size}")
    return [*dict.fromkeys(number - 1 for number in options.map_lines if number <= n)]

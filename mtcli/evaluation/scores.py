"""Metrics, and scores with signatures that make them reproducible.

`METRICS` lists all metrics. Each entry builds a sacreBLEU metric, which computes statistics for
each sentence and a score from their sum. Confidence intervals and significance tests use the same
statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mtcli.config.metrics import MetricOptions
from mtcli.counts import format_count
from mtcli.errors import DataError, MtcliError
from mtcli.evaluation.sacrebleu_errors import convert_errors
from mtcli.evaluation.significance import Rows, StatisticsTable, confidence_interval
from mtcli.evaluation.tokenizers import DEFAULT_TOKENIZER, check_tokenizer, choose_tokenizer
from mtcli.reporting.events import Score

_LINES_PER_BLOCK = 500  # limits memory use: reference n-grams take about 40 KB per line


def _bleu(options: MetricOptions) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = options.tokenize or DEFAULT_TOKENIZER
    check_tokenizer(tokenizer)
    with convert_errors(
        f"cannot load the BLEU tokenizer {tokenizer}", hint="choose another tokenizer (--tokenize)"
    ):
        return BLEU(
            lowercase=options.lowercase,
            force=True,  # suppress sacreBLEU's warning about tokenized text
            tokenize=tokenizer,
            smooth_method=options.smooth_method,
            smooth_value=options.smooth_value,
        )


def _chrf(options: MetricOptions) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(
        char_order=options.chrf_char_order,
        word_order=options.chrf_word_order,
        beta=options.chrf_beta,
        lowercase=options.lowercase,
        whitespace=options.chrf_whitespace,
        eps_smoothing=options.chrf_eps_smoothing,
    )


def _chrf_plus_plus(options: MetricOptions) -> Any:
    return _chrf(replace(options, chrf_word_order=2))


def _ter(options: MetricOptions) -> Any:
    from sacrebleu.metrics.ter import TER

    return TER(
        normalized=options.ter_normalized,
        no_punct=options.ter_no_punct,
        asian_support=options.ter_asian_support,
        case_sensitive=options.ter_case_sensitive,
    )


def _comet(_: MetricOptions) -> Any:
    raise MtcliError(
        "COMET is not available in mtcli: unbabel-comet 2.2.7 requires numpy<2, protobuf<5 and a "
        "version of torchmetrics (<0.11) that fails to import with current versions of setuptools",
        hint="install unbabel-comet in a separate environment and run comet-score on the file "
        "that --output writes",
    )


METRICS: dict[str, Callable[[MetricOptions], Any]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": _chrf_plus_plus,
    "ter": _ter,
    "comet": _comet,
}
LOWER_IS_BETTER = frozenset({"ter"})


def build_metrics(options: MetricOptions) -> dict[str, Any]:
    """Return the metrics in `options` by name; raise an error if a metric is not available."""
    return {name: METRICS[name](options) for name in options.metrics}


def resolve_tokenizer(
    options: MetricOptions, language: str | None
) -> tuple[MetricOptions, list[str]]:
    """Return `options` with a BLEU tokenizer for the language if none is set, and notices."""
    if options.tokenize is not None or "bleu" not in options.metrics:
        return options, []
    choice = choose_tokenizer(language)
    notices = [choice.notice] if choice.notice else []
    return replace(options, tokenize=choice.name), notices


def extract_statistics(
    metrics: Mapping[str, Any],
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> Sequence[Mapping[str, Rows]]:
    """Return the sentence statistics of each system, by metric.

    Lines are processed in blocks, because the n-grams of all references might not fit in memory.
    """
    found: list[dict[str, list[Any]]] = [{name: [] for name in metrics} for _ in systems]
    for start in range(0, len(references[0]), _LINES_PER_BLOCK):
        block = slice(start, start + _LINES_PER_BLOCK)
        # Ignore whitespace at the end of a line, as the sacrebleu command does.
        targets = [[line.rstrip() for line in lines[block]] for lines in references]
        outputs = [[line.rstrip() for line in lines[block]] for lines in systems]
        for name, metric in metrics.items():
            metric._ref_cache = metric._cache_references(targets)
            for rows, lines in zip(found, outputs, strict=True):
                rows[name] += metric._extract_corpus_statistics(lines, None)
            metric._ref_cache = None
    return found


def scores_from_statistics(
    metrics: Mapping[str, Any],
    systems: Sequence[Mapping[str, Rows]],
    resampled: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Score]]:
    """Return the scores of each system, with confidence intervals if `resampled` is given."""
    found = []
    for i, system in enumerate(systems):
        scores = {}
        for name, metric in metrics.items():
            actual = metric._aggregate_and_compute(system[name])
            score = Score(actual.name, float(actual.score), str(metric.get_signature()))
            if resampled:
                interval = confidence_interval(resampled[i][name])
                score = replace(score, margin=interval.margin, mean=interval.mean)
            scores[name] = score
        found.append(scores)
    return found


def set_signature(metrics: Mapping[str, Any], n_resamples: int | None, seed: int | None) -> None:
    """Set the number of resamples and the seed in the metrics' signatures; None omits them."""
    for metric in metrics.values():
        metric.n_bootstrap, metric.seed = n_resamples, seed


def compute_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    options: MetricOptions | None = None,
) -> dict[str, Score]:
    """Return the score of each metric by name, with confidence intervals if requested."""
    check_lengths(hypotheses, references)
    options = options or MetricOptions(resamples=0)
    metrics = build_metrics(options)
    statistics = extract_statistics(metrics, [hypotheses], references)
    resampled = None
    if options.resamples and len(hypotheses) > 1:
        set_signature(metrics, options.resamples, options.seed)
        table = StatisticsTable(metrics, statistics)
        resampled = table.bootstrap(options.resamples, options.seed)
    return scores_from_statistics(metrics, statistics, resampled)[0]


def check_lengths(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise `DataError` if hypotheses or references are missing or their lengths differ."""
    for lines in references:
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{format_count(len(hypotheses), 'translation')}, but "
                f"{format_count(len(lines), 'reference line')}",
                hint="line N of each reference must be the translation of line N of the source",
            )
    if not hypotheses:
        raise DataError("nothing to score: the input is empty", hint="provide at least one line")
    if not references:
        raise DataError("there are no references", hint="provide at least one reference")

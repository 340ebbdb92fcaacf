"""Evaluation of models and existing translations: translate, score, compare."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtcli.config.metrics import MetricOptions, TestOptions
from mtcli.config.search import SearchOptions
from mtcli.counts import format_count
from mtcli.data.formats.base import Languages
from mtcli.evaluation.comparison import compare_systems
from mtcli.evaluation.results import Decoding, Evaluation, SystemResult, TestSet
from mtcli.evaluation.scores import (
    build_metrics,
    check_lengths,
    extract_statistics,
    resolve_tokenizer,
    scores_from_statistics,
    set_signature,
)
from mtcli.evaluation.significance import StatisticsTable
from mtcli.hardware import process_peak_memory, reset_peak_memory
from mtcli.model_dir.saved_tree import saved_languages
from mtcli.translation.pipeline import OnProgress
from mtcli.translation.translator import Translator

_MIN_TOKENIZED = 100  # number of lines that end in " ." (sacreBLEU's threshold)


@dataclass(frozen=True)
class System:
    """A system to score: its name and its translations."""

    name: str
    hypotheses: tuple[str, ...]
    decoding: Decoding | None = None  # None: the translations come from a file


def evaluate_model(
    model: str | Path | Translator,
    source: Iterable[str],
    references: Sequence[Iterable[str]],
    *,
    options: SearchOptions | None = None,
    metrics: MetricOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Translate `source` and score the result against one or more references.

    `model` is a model directory. To set engine options or a target language, pass a `Translator`
    instead. `source` and each reference are lists of lines or open files. `options` replaces the
    model's search options. After each batch, `on_progress` is called with the number of lines that
    the batch completed.
    """
    lines, targets = _read(source), tuple(_read(reference) for reference in references)
    check_lengths(lines, targets)  # before translation, which is slow
    translator = Translator(model) if isinstance(model, str | Path) else model
    test_set = TestSet("", lines, targets, languages=saved_languages(translator.model))
    system = translate_test_set(translator, test_set, options or translator.options, on_progress)
    return score_systems([system], test_set, metrics)


def evaluate_translations(
    hypotheses: Iterable[str],
    references: Sequence[Iterable[str]],
    *,
    target_lang: str | None = None,
    metrics: MetricOptions | None = None,
) -> Evaluation:
    """Score existing translations against one or more references.

    The target language determines the BLEU tokenizer, unless `metrics` sets one.
    """
    lines, targets = _read(hypotheses), tuple(_read(reference) for reference in references)
    check_lengths(lines, targets)
    test_set = TestSet("", None, targets, languages=Languages(None, target_lang))
    return score_systems([System("", lines)], test_set, metrics)


def _read(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of a list or an open file without line endings."""
    if isinstance(lines, str):
        raise TypeError("expected a list of lines or an open file, not one string")
    return tuple(line.removesuffix("\n").removesuffix("\r") for line in lines)


def translate_test_set(
    translator: Translator,
    test_set: TestSet,
    options: SearchOptions,
    on_progress: OnProgress | None = None,
) -> System:
    """Return a model's translations of a test set, and the time and memory that it used."""
    search = replace(options, n_best=1, with_scores=False)
    lines = test_set.source or ()
    reset_peak_memory()
    began, cpu_began = time.perf_counter(), time.process_time()
    hypotheses = tuple(best[0].text for best in translator.stream(lines, search, on_progress))
    decoding = Decoding(
        engine=translator.engine.name,
        beam_size=search.beam_size,
        n_lines=len(lines),
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
        model_bytes=translator.engine.n_bytes,
        memory_bytes=process_peak_memory(),
    )
    return System(str(translator.model), hypotheses, decoding)


def score_systems(
    systems: Sequence[System],
    test_set: TestSet,
    options: MetricOptions | None = None,
    test: TestOptions | None = None,
) -> Evaluation:
    """Score systems and, if there are several, compare them with the first one."""
    options, notices = resolve_tokenizer(options or MetricOptions(), test_set.languages.target)
    for system in systems:
        check_lengths(system.hypotheses, test_set.references)
        notices += _tokenized_notices(system)
    metrics = build_metrics(options)
    lines = [system.hypotheses for system in systems]
    statistics = extract_statistics(metrics, lines, test_set.references)
    table = StatisticsTable(metrics, statistics)
    resampled = None
    if options.resamples and len(test_set) > 1:
        set_signature(metrics, options.resamples, options.seed)
        resampled = table.bootstrap(options.resamples, options.seed)
    scores = scores_from_statistics(metrics, statistics, resampled)
    results = tuple(
        SystemResult(system.name, system.hypotheses, found, system.decoding)
        for system, found in zip(systems, scores, strict=True)
    )
    comparison = None
    if len(results) > 1:
        test = test or TestOptions(seed=options.seed)
        is_same = (test.n_trials, test.seed) == (options.resamples, options.seed)
        comparison = compare_systems(results, table, test, resampled if is_same else None)
    return Evaluation(test_set, results, comparison, notices=tuple(notices))


def _tokenized_notices(system: System) -> list[str]:
    n_tokenized = sum(line.endswith(" .") for line in system.hypotheses)
    if n_tokenized < _MIN_TOKENIZED:
        return []
    lines = format_count(n_tokenized, "line")
    return [f"{system.name}: {lines} end in ' .'; if the text is tokenized, detokenize it"]

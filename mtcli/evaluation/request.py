"""Evaluation requests from `mtcli evaluate` and `mtcli compare`, and a function that runs them."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtcli.config.metrics import MetricOptions, TestOptions
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.counts import format_count
from mtcli.data.formats import has_known_suffix
from mtcli.data.formats.base import UNKNOWN_LANGUAGES, Languages
from mtcli.errors import DataError, OptionsError
from mtcli.evaluation.analysis.analyze import analyze
from mtcli.evaluation.analysis.results import Analysis
from mtcli.evaluation.analysis.training_text import (
    TrainingText,
    read_saved_counts,
    read_training_corpus,
)
from mtcli.evaluation.direction import check_file_languages, check_language
from mtcli.evaluation.evaluate import System, score_systems, translate_test_set
from mtcli.evaluation.results import Decoding, Evaluation, TestSet
from mtcli.evaluation.scores import build_metrics, resolve_tokenizer
from mtcli.evaluation.test_sets import (
    LoadedTestSet,
    NamedTestSet,
    are_sgml,
    load_named_test_set,
    read_test_set,
)
from mtcli.files import write_file
from mtcli.model_dir.layout import EXPORT
from mtcli.model_dir.saved_tree import check_has_weights, saved_languages
from mtcli.model_dir.tags import model_tags
from mtcli.tokenizer import load_tokenizers
from mtcli.translation.pipeline import OnProgress
from mtcli.translation.translator import Translator


@dataclass(frozen=True)
class EvaluationRequest:
    """Systems, test set and options for an evaluation; the first system is the baseline."""

    models: tuple[Path, ...] = ()  # models that translate the source
    hypotheses: tuple[Path, ...] = ()  # files with translations, instead of `models`
    source: Path | None = None  # source of the hypotheses, if it is known
    files: tuple[str, ...] = ()  # source (only for models) and references, or one corpus
    named: NamedTestSet | None = None  # sacreBLEU test set, instead of `files`
    languages: Languages = UNKNOWN_LANGUAGES
    outputs: tuple[Path, ...] = ()  # files for the translations, one per model
    metrics: MetricOptions = MetricOptions()
    test: TestOptions = TestOptions()
    engine: EngineOptions = EngineOptions()
    search: Mapping[str, Any] = field(default_factory=dict)  # overrides the models' search options
    to: str | None = None  # target language, for models with several target languages
    tag: str | None = None  # source tag, for models trained with tags
    has_analysis: bool = False
    train_corpora: tuple[str, ...] = ()  # for the analysis; empty: use saved word counts

    def __post_init__(self) -> None:
        SearchOptions(**self.search)  # raises `OptionsError` for values out of range
        for paths in (self.models, self.hypotheses, self.outputs):
            repeated = [str(path) for i, path in enumerate(paths) if path in paths[:i]]
            if repeated:
                raise OptionsError(f"{repeated[0]} is given twice", hint="specify each path once")
        if self.outputs and len(self.outputs) != len(self.models):
            raise OptionsError(
                f"{format_count(len(self.outputs), 'output file')} for "
                f"{format_count(len(self.models), 'model')}",
                hint="specify one --output per model, in the same order",
            )


@dataclass(frozen=True)
class Listener:
    """Callbacks for messages and progress; by default, they do nothing."""

    notify: Callable[[str], None] = lambda _: None
    # Called with the name of a model and the number of lines that it will translate. The context
    # manager yields the `on_progress` callback for this translation.
    progress: Callable[[str, int], AbstractContextManager[OnProgress | None]] = lambda *_: (
        nullcontext()
    )


def run_evaluation(request: EvaluationRequest, listener: Listener = Listener()) -> Evaluation:
    """Read the test set, translate it with each model, and score and compare the results.

    Errors in models, files and metrics are raised before the first translation.
    """
    languages = _model_languages(request)
    if request.named:
        check_language(request.named.names, request.named.pair.partition("-")[2], request.to)
        loaded = load_named_test_set(request.named, listener.notify)
    else:
        check_file_languages(request.models, request.files, request.to, listener.notify)
        loaded = _read_files(request, languages, listener)
    test_set = loaded.test_set
    systems = [System(str(path), loaded.read_hypotheses(path)) for path in request.hypotheses]
    metrics, _ = resolve_tokenizer(request.metrics, test_set.languages.target)
    build_metrics(metrics)
    _check_outputs(request)
    for model in request.models:
        _choose_tags(model, request)  # raises errors before the first translation
    for i, model in enumerate(request.models):
        system = _translate(model, test_set, request, listener)
        if request.outputs:
            write_file(request.outputs[i], "".join(f"{line}\n" for line in system.hypotheses))
        systems.append(system)
    evaluation = score_systems(systems, test_set, request.metrics, request.test)
    if request.has_analysis:
        evaluation = replace(evaluation, analysis=_analyze(evaluation, request))
    for text in evaluation.notices:
        listener.notify(text)
    return evaluation


def _read_files(
    request: EvaluationRequest, languages: Languages, listener: Listener
) -> LoadedTestSet:
    """Read the test set from the files of a request."""
    files, has_source = request.files, bool(request.models)
    if request.source:
        files, has_source = (str(request.source), *files), True
        for name in request.files:
            if has_known_suffix(name) and not are_sgml(files):
                raise DataError(
                    f"{name} is not a text file, so it cannot be combined with a separate source",
                    hint="omit --source, or pass the references as text files",
                )
    return read_test_set(files, languages, listener.notify, has_source=has_source)


def _analyze(evaluation: Evaluation, request: EvaluationRequest) -> Analysis:
    """Return the analysis of an evaluation.

    Word frequencies come from the training corpora of the request or, if it has none, from the
    word counts saved with the models.
    """
    test_set, systems = evaluation.test_set, evaluation.systems
    if request.train_corpora:
        training: TrainingText | None = read_training_corpus(
            request.train_corpora, test_set.languages, test_set, systems
        )
    else:
        training = read_saved_counts(request.models, test_set, systems)
    return analyze(test_set, systems, training, request.metrics)


def _model_languages(request: EvaluationRequest) -> Languages:
    """Return the languages of the evaluation; raise an error if a model has no weights.

    Languages that the user specified take precedence over those of the first model.
    """
    found = [saved_languages(model) for model in request.models]
    for model in request.models:
        if not (model / EXPORT).is_dir():
            check_has_weights(model)
    first = found[0] if found else UNKNOWN_LANGUAGES
    specified = request.languages
    return Languages(specified.source or first.source, specified.target or first.target)


def _check_outputs(request: EvaluationRequest) -> None:
    """Raise `DataError` if an output file cannot be written or is also an input."""
    inputs = [Path(name) for name in request.files]
    for path in request.outputs:
        if path.is_dir() or (path.parent.exists() and not os.access(path.parent, os.W_OK)):
            raise DataError(f"cannot write {path}", hint="choose another file for --output")
        if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
            raise DataError(
                f"{path} is also an input file", hint="choose another file for --output"
            )


@dataclass(frozen=True)
class _TagChoice:
    """Target language and tag for one model."""

    to: str | None
    tag: str | None


def _choose_tags(model: Path, request: EvaluationRequest) -> _TagChoice:
    """Return the target language and tag for a model; raise `EngineError` if they are not valid.

    In a comparison, models with a single target language ignore the language, and models without
    tags ignore the tag.
    """
    tags = model_tags(model, load_tokenizers(model))
    is_only = len(request.models) == 1
    choice = _TagChoice(
        request.to if tags.languages or is_only else None,
        request.tag if tags.tags or is_only else None,
    )
    tags.symbols(choice.to, choice.tag)
    return choice


def open_translator(model: Path, request: EvaluationRequest) -> Translator:
    """Open a model with the engine options, target language and tag of `request`."""
    choice = _choose_tags(model, request)
    return Translator(model, engine=request.engine, to=choice.to, tag=choice.tag)


def _translate(
    model: Path, test_set: TestSet, request: EvaluationRequest, listener: Listener
) -> System:
    translator = open_translator(model, request)
    options = replace(translator.options, n_best=1, **request.search)
    with listener.progress(str(model), len(test_set)) as on_progress:
        system = translate_test_set(translator, test_set, options, on_progress)
    if system.decoding:
        listener.notify(f"{model}: {describe_decoding(system.decoding)}")
    return system


def describe_decoding(decoding: Decoding) -> str:
    """Return the engine, beam size and speed as text."""
    return (
        f"{decoding.engine}, beam size {decoding.beam_size}, "
        f"{format_count(decoding.n_lines, 'line')} in {decoding.seconds:.1f} s, "
        f"{decoding.lines_per_second:,.0f} lines/s"
    )

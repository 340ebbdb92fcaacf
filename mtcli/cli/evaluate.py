"""`mtcli evaluate`: score and compare models or translation files."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtcli.cli import metric_options as metric_opts
from mtcli.cli import options as opts
from mtcli.cli import report_options as report_opts
from mtcli.cli.base import Command, Quiet, SourceLang, Tag, TargetLang, To, app
from mtcli.cli.progress import progress_bar
from mtcli.cli.usage import name_options_in_errors, reject_options
from mtcli.config.metrics import (
    DEFAULT_METRICS,
    DEFAULT_RESAMPLES,
    DEFAULT_SEED,
    MetricOptions,
    TestOptions,
)
from mtcli.config.report import DEFAULT_MAPS, ReportOptions
from mtcli.config.search import EngineOptions

_METRIC_OPTIONS = ("metric", "tokenize", "smooth_method", "smooth_value", "test")

if TYPE_CHECKING:
    from mtcli.evaluation.request import EvaluationRequest, Listener
    from mtcli.evaluation.test_sets import NamedTestSet
    from mtcli.translation.pipeline import OnProgress


@dataclass(frozen=True)
class _Inputs:
    """Models, files and languages from the command line."""

    files: list[str]  # the model (unless there are hypotheses), then the test set
    hypotheses: list[Path]
    compared: list[Path]
    outputs: list[Path]
    source_lang: str | None
    target_lang: str | None

    @property
    def models(self) -> tuple[Path, ...]:
        """The model and the models to compare with it; empty if there are hypotheses."""
        return () if self.hypotheses else (Path(self.files[0]), *self.compared)

    @property
    def test_files(self) -> tuple[str, ...]:
        """Files of the test set."""
        return tuple(self.files if self.hypotheses else self.files[1:])


@dataclass(frozen=True)
class _TestSetOptions:
    """Options for a sacreBLEU test set."""

    test_set: str | None
    pair: str | None
    origlang: str | None
    subset: str | None


@app.command(
    cls=Command, epilog="Example: mtcli evaluate runs/demo data/demo/test.en data/demo/test.de"
)
def evaluate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] [SOURCE] [REFERENCE]...",
            help="Model and source file (omit both with --hypothesis), then the reference files; "
            "a corpus such as test.tsv or newstest2021.en-de.xml can replace the text files.",
        ),
    ] = [],
    hypothesis: metric_opts.Hypothesis = [],
    source: metric_opts.SourceFile = None,
    output: metric_opts.Outputs = [],
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    to: To = None,
    tag: Tag = None,
    format_: metric_opts.ResultFormat = None,
    as_json: metric_opts.AsJson = False,
    report: report_opts.Report = None,
    quiet: Quiet = False,
    test_set: metric_opts.TestSetName = None,
    pair: metric_opts.Pair = None,
    origlang: metric_opts.OrigLang = None,
    subset: metric_opts.Subset = None,
    metric: metric_opts.MetricNames = [],
    tokenize: metric_opts.Tokenize = None,
    lowercase: metric_opts.Lowercase = False,
    smooth_method: metric_opts.SmoothMethod = "exp",
    smooth_value: metric_opts.SmoothValue = None,
    chrf_char_order: metric_opts.CharOrder = 6,
    chrf_word_order: metric_opts.WordOrder = 0,
    chrf_beta: metric_opts.Beta = 2,
    chrf_whitespace: metric_opts.Whitespace = False,
    chrf_eps_smoothing: metric_opts.EpsSmoothing = False,
    ter_case_sensitive: metric_opts.TerCaseSensitive = False,
    ter_asian_support: metric_opts.TerAsianSupport = False,
    ter_no_punct: metric_opts.TerNoPunct = False,
    ter_normalized: metric_opts.TerNormalized = False,
    resamples: metric_opts.Resamples = DEFAULT_RESAMPLES,
    analysis: metric_opts.AnalysisFlag = False,
    train_corpus: metric_opts.TrainCorpora = [],
    compare: metric_opts.Compare = [],
    test: metric_opts.TestMethod = "bootstrap",
    trials: metric_opts.Trials = None,
    resampling_seed: metric_opts.ResamplingSeed = DEFAULT_SEED,
    maps: report_opts.Maps = DEFAULT_MAPS,
    map_line: report_opts.MapLines = [],
    beam_size: opts.BeamSize = None,
    length_penalty: opts.LengthPenalty = None,
    engine: opts.EngineName = "auto",
    quantization: opts.Quantization = None,
    shortlist: opts.Shortlist = None,
    threads: opts.Threads = None,
    device: opts.Device = "auto",
) -> None:
    """Score translations with BLEU, chrF, chrF++ and TER, and compare systems."""
    format_ = _check_format(format_, as_json=as_json)
    inputs = _Inputs(files, hypothesis, compare, output, source_lang, target_lang or to)
    named = _TestSetOptions(test_set, pair, origlang, subset)
    _check_usage(inputs, named, trials)
    _check_source(source, inputs, named)
    _check_analysis(analysis, train_corpus, format_)
    with name_options_in_errors(_METRIC_OPTIONS):
        metrics = MetricOptions(
            metrics=tuple(dict.fromkeys(metric or DEFAULT_METRICS)),
            tokenize=tokenize,
            lowercase=lowercase,
            smooth_method=smooth_method,
            smooth_value=smooth_value,
            chrf_char_order=chrf_char_order,
            chrf_word_order=chrf_word_order,
            chrf_beta=chrf_beta,
            chrf_whitespace=chrf_whitespace,
            chrf_eps_smoothing=chrf_eps_smoothing,
            ter_case_sensitive=ter_case_sensitive,
            ter_asian_support=ter_asian_support,
            ter_no_punct=ter_no_punct,
            ter_normalized=ter_normalized,
            resamples=resamples,
            seed=resampling_seed,
        )
        significance = TestOptions(test, trials, resampling_seed)
    report_options = report_opts.read_report_options(report, maps, map_line)
    if hypothesis:
        reject_options(
            {
                "to": to,
                "tag": tag,
                "beam_size": beam_size,
                "length_penalty": length_penalty,
                "engine": engine if engine != "auto" else None,
                "quantization": quantization,
                "shortlist": shortlist,
                "threads": threads,
                "device": device if device != "auto" else None,
                "maps": maps if maps != DEFAULT_MAPS else None,
                "map_line": map_line or None,
            },
            "MODEL, not --hypothesis",
        )
    engine_options = EngineOptions(
        engine=engine,
        device=device,
        quantization=quantization,
        threads=threads,
        shortlist=shortlist,
    )
    opts.check_engine_options(engine_options)
    typed = {"beam_size": beam_size, "length_penalty": length_penalty}
    with name_options_in_errors(typed):
        request = replace(
            _request(inputs, named, metrics, significance, engine_options, typed),
            source=source,
            to=to,
            tag=tag,
            has_analysis=analysis,
            train_corpora=tuple(train_corpus),
        )
        _run(request, report_options, format_, is_quiet=quiet)


def _check_format(name: str | None, *, as_json: bool) -> str:
    """Return the output format; raise `BadParameter` if it is unknown or contradicts --json."""
    opts.check_choice("format", name, metric_opts.RESULT_FORMATS)
    if as_json and name not in (None, "json"):
        raise typer.BadParameter(f"--json and --format {name} are mutually exclusive")
    return "json" if as_json else name or "text"


def _check_analysis(is_wanted: bool, train_corpora: list[str], format_: str) -> None:
    """Raise `BadParameter` if analysis options contradict other options."""
    if train_corpora and not is_wanted:
        raise typer.BadParameter("--train-corpus requires --analysis")
    if is_wanted and format_ not in ("text", "json"):
        raise typer.BadParameter(f"--analysis requires --format text or json, not {format_}")


def _check_usage(inputs: _Inputs, named: _TestSetOptions, trials: int | None) -> None:
    """Raise `BadParameter` if arguments are missing or options contradict each other."""
    if inputs.hypotheses and (inputs.compared or inputs.outputs):
        option = "--compare" if inputs.compared else "--output"
        raise typer.BadParameter(f"{option} requires MODEL, not --hypothesis")
    n_expected = 0 if inputs.hypotheses else 1
    if named.test_set:
        if len(inputs.files) != n_expected:
            expected = "--hypothesis" if inputs.hypotheses else "MODEL"
            raise typer.BadParameter(f"with --test-set, pass no files except {expected}")
    elif len(inputs.files) <= n_expected:
        raise typer.BadParameter(
            "expected MODEL SOURCE REFERENCE..., MODEL CORPUS, MODEL --test-set NAME or "
            "--hypothesis FILE REFERENCE"
        )
    for name in ("pair", "origlang", "subset"):
        if getattr(named, name) and not named.test_set:
            raise typer.BadParameter(f"--{name} requires --test-set")
    if trials and len(inputs.hypotheses) < 2 and not inputs.compared:
        raise typer.BadParameter("--trials requires --compare or more than one --hypothesis")


def _check_source(source: Path | None, inputs: _Inputs, named: _TestSetOptions) -> None:
    """Raise `BadParameter` if --source is set, but the test set has its own source."""
    if source and not inputs.hypotheses:
        raise typer.BadParameter(
            "--source requires --hypothesis; with MODEL, pass SOURCE as the second argument"
        )
    if source and named.test_set:
        raise typer.BadParameter("--source and --test-set are mutually exclusive")


def _request(
    inputs: _Inputs,
    named: _TestSetOptions,
    metrics: MetricOptions,
    significance: TestOptions,
    engine: EngineOptions,
    typed: Mapping[str, Any],
) -> "EvaluationRequest":
    from mtcli.data.formats.base import Languages
    from mtcli.evaluation.request import EvaluationRequest

    return EvaluationRequest(
        models=inputs.models,
        hypotheses=tuple(inputs.hypotheses),
        files=inputs.test_files,
        named=_named(named, inputs) if named.test_set else None,
        languages=Languages(inputs.source_lang, inputs.target_lang),
        outputs=tuple(inputs.outputs),
        metrics=metrics,
        test=significance,
        engine=engine,
        search={name: value for name, value in typed.items() if value is not None},
    )


def _named(options: _TestSetOptions, inputs: _Inputs) -> "NamedTestSet":
    """Return the sacreBLEU test set; its language pair defaults to that of the model."""
    from mtcli.evaluation.test_sets import NamedTestSet
    from mtcli.model_dir.saved_tree import saved_languages

    pair = options.pair
    if pair is None and inputs.models:
        languages = saved_languages(inputs.models[0])
        if languages.source and languages.target:
            pair = f"{languages.source}-{languages.target}"
    if pair is None:
        raise typer.BadParameter("--test-set requires --pair, such as --pair en-de")
    return NamedTestSet(options.test_set or "", pair, options.origlang, options.subset)


def make_listener(*, is_quiet: bool) -> "Listener":
    """Return a listener that prints messages and progress to stderr, or nothing if `is_quiet`."""
    from mtcli.evaluation.request import Listener

    return Listener(
        notify=_ignore if is_quiet else functools.partial(typer.echo, err=True),
        progress=functools.partial(_progress, is_visible=not is_quiet),
    )


def _run(
    request: "EvaluationRequest", report: ReportOptions | None, format_: str, *, is_quiet: bool
) -> None:
    """Run the evaluation, print the result, and write the report if requested."""
    from mtcli.evaluation.request import run_evaluation
    from mtcli.evaluation.tables import FORMATS

    listener = make_listener(is_quiet=is_quiet)
    result = run_evaluation(request, listener)
    typer.echo(FORMATS[format_](result))
    if request.has_analysis and format_ == "text":
        from mtcli.evaluation.analysis.tables import format_analysis

        typer.echo(f"\n{format_analysis(result)}")
    if report:
        from mtcli.evaluation.write_report import write_report

        write_report(result, request, report, listener.notify)


def _ignore(_: str) -> None:
    """Ignore a message."""


@contextmanager
def _progress(_: str, n_lines: int, *, is_visible: bool) -> "Iterator[OnProgress]":
    """Run the block with a progress bar; yield the function that advances it."""
    from mtcli.translation.stream import Progress

    progress = Progress(n_lines)
    progress.read(n_lines, n_lines)
    with progress_bar(progress, is_visible=is_visible):
        yield progress.advance

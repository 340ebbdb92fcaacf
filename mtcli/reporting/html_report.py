"""`report.html`: headline numbers, charts, sample translations and settings in one HTML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from mtcli.counts import format_count
from mtcli.reporting.charts import Chart, Point, chart_html, subsample
from mtcli.reporting.events import MAIN_METRIC
from mtcli.reporting.log import (
    LogEntry,
    drop_undone_entries,
    expand_sets,
    finite_number,
    logged_scores,
    select_entries,
)
from mtcli.reporting.messages import format_duration, metric_label
from mtcli.reporting.pages import Table, Tile, render_page
from mtcli.reporting.run_charts import (
    loss_points,
    main_charts,
    metric_names,
    padding_points,
    rollback_text,
    side_charts,
    smooth,
    throughput_points,
)


def report_html(
    entries: Sequence[Mapping[str, Any]], config_yaml: str, environment: Mapping[str, str]
) -> str:
    """Return the report on a finished or unfinished run, built from the entries of its log."""
    kept = expand_sets(drop_undone_entries(entries))
    setup = list(takewhile(lambda entry: entry.get("event") == "notice", kept))
    messages = select_entries(kept[len(setup) :], "notice")
    side = side_charts(kept, _optimizer(config_yaml))
    return render_page(
        "training.html.j2",
        {
            "headline": summarize_run(kept),
            "rollbacks": [rollback_text(entry) for entry in select_entries(kept, "rollback")],
            "main_charts": _render_charts(main_charts(kept), "main"),
            "side_charts": _render_charts(side, "side"),
            "samples": collect_samples(select_entries(kept, "validation")),
            "validations": _validation_table(kept),
            "setup": [str(entry.get("text", "")) for entry in setup],
            "config_yaml": config_yaml.strip(),
            "messages": [str(entry.get("text", "")) for entry in messages],
            "environment": list(environment.items()),
        },
        assets=["charts.js"],
    )


@dataclass(frozen=True)
class Headline:
    """Header of the report: state, progress and the most important numbers."""

    state: str
    share: str  # completed fraction of the steps, such as 40.0%
    progress: str
    time_span: str
    tiles: Sequence[Tile]


def summarize_run(entries: Sequence[LogEntry]) -> Headline:
    """Return the header of the report."""
    finished, steps = select_entries(entries, "finished"), select_entries(entries, "step")
    training = [*steps, *select_entries(entries, "validation"), *finished]
    step = max((finite_number(entry, "step") or 0 for entry in training), default=0)
    total = max((finite_number(entry, "steps") or 0 for entry in training), default=0)
    share = max(0.0, min(1.0, step / total)) if total else 0.0
    progress = f"step {step:,.0f}{f' of {total:,.0f}' if total else ''}" if step else "no steps yet"
    return Headline(
        state="finished" if finished else "training",
        share=f"{share:.1%}",
        progress=progress + _outcome(entries),
        time_span=_time_span(entries),
        tiles=[*_dev_tiles(entries), *_step_tiles(steps)],
    )


def best_validation(entries: Sequence[LogEntry]) -> LogEntry | None:
    """Return the best validation so far, according to the metric of the run."""
    validations = select_entries(entries, "validation")
    best = [entry for entry in validations if entry.get("is_best")]
    if best:
        return best[-1]
    return max(
        validations, key=lambda entry: finite_number(entry, MAIN_METRIC) or 0.0, default=None
    )


def _outcome(entries: Sequence[LogEntry]) -> str:
    """Return text with the stop reason and the origin of the weights; empty during training."""
    last = (select_entries(entries, "finished") or [{}])[-1]
    reason, weights = last.get("reason"), last.get("weights")
    reason_text = f" ({reason})" if reason else ""
    weights_text = f"; weights: {weights}" if weights else ""
    return f"{reason_text}{weights_text}"


def _time_span(entries: Sequence[LogEntry]) -> str:
    times = [time for entry in entries if (time := finite_number(entry, "time")) is not None]
    if not times:
        return "The log is empty."
    start, end = (datetime.fromtimestamp(time, tz=UTC) for time in (min(times), max(times)))
    end_text = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    elapsed = format_duration(max(times) - min(times))
    return f"{start:%Y-%m-%d %H:%M} to {end_text} UTC ({elapsed}, including pauses)"


def _dev_tiles(entries: Sequence[LogEntry]) -> list[Tile]:
    """Return tiles with the scores of the final weights, or of the best validation so far."""
    best = best_validation(entries)
    if best is None:
        return []
    step = f"step {finite_number(best, 'step') or 0:,.0f}"
    scores = logged_scores(best)
    main, origin = scores.pop(MAIN_METRIC, None), f"best, {step}"
    finished = (select_entries(entries, "finished") or [{}])[-1]
    if finite_number(finished, MAIN_METRIC) is not None:
        main, origin = finite_number(finished, MAIN_METRIC), str(finished.get("weights") or step)
    return [
        *_tile(f"dev {metric_label(MAIN_METRIC)}", main, ".2f", origin),
        *(
            tile
            for k, v in scores.items()
            for tile in _tile(f"dev {metric_label(k)}", v, ".2f", step)
        ),
        *_tile("dev loss", finite_number(best, "loss"), ".3f", step),
    ]


def _step_tiles(steps: Sequence[LogEntry]) -> list[Tile]:
    return [
        *_tile("training loss", _latest(loss_points(steps)), ".3f", "nats per token"),
        *_tile("throughput", _latest(throughput_points(steps)), ",.0f", "tokens per second"),
        *_tile("padding", _latest(padding_points(steps)), ".1f", "% of all positions"),
    ]


def _latest(points: Sequence[Point]) -> float | None:
    return smooth(points)[-1][1] if points else None


def _tile(name: str, value: float | None, form: str, note: str) -> list[Tile]:
    """Return a list with one tile; an empty list if `value` is None."""
    return [] if value is None else [Tile(name, f"{value:{form}}", note)]


def _optimizer(config_yaml: str) -> str:
    match = re.search(r"^  optimizer: (\w+)$", config_yaml, re.MULTILINE)
    return match[1] if match else ""


def _render_charts(charts: Sequence[Chart], name: str) -> list[str]:
    rendered = [chart_html(chart, f"{name}-{i}") for i, chart in enumerate(charts)]
    return [figure for figure in rendered if figure]


@dataclass(frozen=True)
class ValidationTable:
    """All validations, collapsed because the charts show the same numbers."""

    summary: str
    table: Table
    signature: str


def _validation_table(entries: Sequence[LogEntry]) -> ValidationTable | None:
    validations, best = select_entries(entries, "validation"), best_validation(entries)
    if best is None:
        return None
    metrics = metric_names(validations)
    forms = {"step": ",.0f", "loss": ".3f", **dict.fromkeys(metrics, ".2f")}
    best_row = next(i for i, entry in enumerate(validations) if entry is best)
    return ValidationTable(
        format_count(len(validations), "validation"),
        Table(
            header=["step", "dev loss", *map(metric_label, metrics)],
            rows=[_validation_row(entry, forms) for entry in validations],
            caption="Validations",
            n_text_columns=0,
            best_row=best_row,
        ),
        f"{metric_label(MAIN_METRIC)} signature: {best.get('signature', '')}",
    )


def _validation_row(entry: LogEntry, forms: Mapping[str, str]) -> list[str]:
    cells = [(finite_number(entry, key), form) for key, form in forms.items()]
    return ["" if value is None else f"{value:{form}}" for value, form in cells]


_MAX_VERSIONS = 100  # per sentence: a long run has thousands
_N_VISIBLE = 6  # versions shown at the start and at the end; those in between are collapsed
_MAX_CHARACTERS = 400  # per text: early checkpoints may output very long translations


@dataclass(frozen=True)
class SampleVersion:
    """A translation and the first and last of the consecutive validations that produced it."""

    first_step: float
    last_step: float
    text: str


@dataclass(frozen=True)
class ShownVersion:
    """A translation with its steps; `segments` are (text, is_match) pairs."""

    steps: str
    segments: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class ShownSample:
    """A sample sentence with its translations; the page collapses the `hidden` ones."""

    source: str
    reference: str
    first: Sequence[ShownVersion]
    hidden: Sequence[ShownVersion] = ()
    last: Sequence[ShownVersion] = ()


def collect_samples(validations: Sequence[LogEntry]) -> list[ShownSample]:
    """Return each sample sentence with its reference and its translations over time."""
    sentences: dict[tuple[str, str], list[SampleVersion]] = {}
    for validation in validations:
        step = finite_number(validation, "step") or 0
        for sample in validation.get("samples") or ():
            sentence = str(sample.get("source", "")), str(sample.get("reference", ""))
            versions = sentences.setdefault(sentence, [])
            _add_version(versions, step, str(sample.get("translation", "")))
    return [_show_sample(*sentence, versions) for sentence, versions in sentences.items()]


def _add_version(versions: list[SampleVersion], step: float, text: str) -> None:
    """Append the translation at `step`; extend the last version if the text is the same."""
    if versions and versions[-1].text == text:
        versions[-1] = SampleVersion(versions[-1].first_step, step, text)
    else:
        versions.append(SampleVersion(step, step, text))


def _show_sample(source: str, reference: str, versions: Sequence[SampleVersion]) -> ShownSample:
    shown = [
        ShownVersion(_steps(version), match_segments(version.text, reference))
        for version in subsample(versions, _MAX_VERSIONS)
    ]
    texts = _clip(source), _clip(reference)
    if len(shown) <= 3 * _N_VISIBLE:
        return ShownSample(*texts, shown)
    middle = shown[_N_VISIBLE:-_N_VISIBLE]
    return ShownSample(*texts, shown[:_N_VISIBLE], middle, shown[-_N_VISIBLE:])


def match_segments(text: str, reference: str) -> list[tuple[str, bool]]:
    """Split `text` into (words, is_match) segments; matches follow the order of the reference."""
    words = _clip(text).split()
    matcher = SequenceMatcher(None, words, _clip(reference).split(), autojunk=False)
    segments, end = [], 0
    for block in matcher.get_matching_blocks():
        segments.append((" ".join(words[end : block.a]), False))
        end = block.a + block.size
        segments.append((" ".join(words[block.a : end]), True))
    return [(part, is_match) for part, is_match in segments if part]


def _steps(version: SampleVersion) -> str:
    first, last = f"{version.first_step:,.0f}", f"{version.last_step:,.0f}"
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"

"""`report.html`: headline numbers, charts, sample translations and settings in one HTML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from html import escape
from itertools import takewhile
from typing import Any

from mtcli.reporting.charts import Point, chart_html, subsample
from mtcli.reporting.events import MAIN_METRIC
from mtcli.reporting.html_template import render_page
from mtcli.reporting.log import (
    LogEntry,
    drop_undone_entries,
    expand_sets,
    finite_number,
    logged_scores,
    select_entries,
)
from mtcli.reporting.messages import format_duration, metric_label
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
    """Return the report on a run, finished or not, from the entries of its log."""
    kept = expand_sets(drop_undone_entries(entries))
    setup = list(takewhile(lambda entry: entry.get("event") == "notice", kept))
    messages = select_entries(kept[len(setup) :], "notice")
    parts = [
        headline_html(kept),
        _section("Rollbacks", _rollbacks(kept)),
        _section("Curves", _charts(kept, _optimizer(config_yaml))),
        _section("Sample translations", samples_html(select_entries(kept, "validation"))),
        _section("Validations", _validations(kept)),
        _section("Plan", _notices(setup) + _settings(config_yaml)),
        _section("Messages", _notices(messages)),
        _section("Environment", _environment(environment)),
    ]
    return render_page("Training report", "".join(parts))


def headline_html(entries: Sequence[LogEntry]) -> str:
    """Return the header: state, progress and the most important numbers."""
    finished, steps = select_entries(entries, "finished"), select_entries(entries, "step")
    state = "finished" if finished else "training"
    training = [*steps, *select_entries(entries, "validation"), *finished]
    step = max((finite_number(entry, "step") or 0 for entry in training), default=0)
    total = max((finite_number(entry, "steps") or 0 for entry in training), default=0)
    share = min(1.0, step / total) if total else 0.0
    progress = f"step {step:,.0f}{f' of {total:,.0f}' if total else ''}" if step else "no step yet"
    return f"""<header>
<h1>Training report <span class="state {state}">{state}</span></h1>
<div class="bar {state}" aria-hidden="true"><span style="width: {share:.1%}"></span></div>
<p>{progress}{_outcome(entries)}</p>
<p class="muted">{_time_span(entries)}</p>
<dl class="tiles">{_dev_tiles(entries)}{_step_tiles(steps)}</dl>
</header>
"""


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
    """Return the reason why the run ended and the origin of its weights; empty while it trains."""
    last = (select_entries(entries, "finished") or [{}])[-1]
    reason, weights = last.get("reason"), last.get("weights")
    reason_text = f" ({escape(str(reason))})" if reason else ""
    weights_text = f"; weights: {escape(str(weights))}" if weights else ""
    return f"{reason_text}{weights_text}"


def _time_span(entries: Sequence[LogEntry]) -> str:
    times = [time for entry in entries if (time := finite_number(entry, "time")) is not None]
    if not times:
        return "The log is empty."
    start, end = (datetime.fromtimestamp(time, tz=UTC) for time in (min(times), max(times)))
    end_text = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    elapsed = format_duration(max(times) - min(times))
    return f"{start:%Y-%m-%d %H:%M} to {end_text} UTC ({elapsed}, including pauses)"


def _dev_tiles(entries: Sequence[LogEntry]) -> str:
    """Return the scores of the final weights, or those of the best validation so far."""
    best = best_validation(entries)
    if best is None:
        return ""
    step = f"step {finite_number(best, 'step') or 0:,.0f}"
    scores = logged_scores(best)
    main, origin = scores.pop(MAIN_METRIC, None), f"best, {step}"
    finished = (select_entries(entries, "finished") or [{}])[-1]
    if finite_number(finished, MAIN_METRIC) is not None:
        main, origin = finite_number(finished, MAIN_METRIC), str(finished.get("weights") or step)
    return "".join(
        [
            _tile(f"dev {metric_label(MAIN_METRIC)}", main, ".2f", origin),
            *(_tile(f"dev {metric_label(k)}", v, ".2f", step) for k, v in scores.items()),
            _tile("dev loss", finite_number(best, "loss"), ".3f", step),
        ]
    )


def _step_tiles(steps: Sequence[LogEntry]) -> str:
    return "".join(
        [
            _tile("training loss", _latest(loss_points(steps)), ".3f", "nats per token"),
            _tile("throughput", _latest(throughput_points(steps)), ",.0f", "tokens per second"),
            _tile("padding", _latest(padding_points(steps)), ".1f", "% of all positions"),
        ]
    )


def _latest(points: Sequence[Point]) -> float | None:
    return smooth(points)[-1][1] if points else None


def _tile(name: str, value: float | None, form: str, note: str) -> str:
    """Return a number with its name and a note; an empty string if there is no number."""
    if value is None:
        return ""
    return f"<div><dt>{escape(name)}</dt><dd>{value:{form}}<small>{escape(note)}</small></dd></div>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>\n{content}</section>\n" if content else ""


def _optimizer(config_yaml: str) -> str:
    match = re.search(r"^  optimizer: (\w+)$", config_yaml, re.MULTILINE)
    return match[1] if match else ""


def _charts(entries: Sequence[LogEntry], optimizer: str) -> str:
    main = [chart_html(chart, f"main-{i}") for i, chart in enumerate(main_charts(entries))]
    side = [
        chart_html(chart, f"side-{i}") for i, chart in enumerate(side_charts(entries, optimizer))
    ]
    if not any([*main, *side]):
        return ""
    return f"""<div class="charts">{"".join(main)}</div>
<div class="charts side">{"".join(side)}</div>
"""


def _rollbacks(entries: Sequence[LogEntry]) -> str:
    rollbacks = select_entries(entries, "rollback")
    items = [f"<li>{escape(rollback_text(entry))}</li>" for entry in rollbacks]
    return f'<div class="panel warning"><ul>{"".join(items)}</ul></div>\n' if items else ""


def _validations(entries: Sequence[LogEntry]) -> str:
    """Return a table of all validations, collapsed because the charts show the same numbers."""
    validations, best = select_entries(entries, "validation"), best_validation(entries)
    if best is None:
        return ""
    metrics = metric_names(validations)
    rows = [_validation_row(entry, metrics, is_best=entry is best) for entry in validations]
    heads = "".join(f"<th>{escape(metric_label(name))}</th>" for name in metrics)
    count = f"{len(rows)} validations" if len(rows) > 1 else "1 validation"
    signature = escape(str(best.get("signature", "")))
    return f"""<details class="panel"><summary>{count}</summary>
<table><tr><th>step</th><th>dev loss</th>{heads}</tr>
{"".join(rows)}</table>
<p class="muted">{metric_label(MAIN_METRIC)} signature: {signature}</p></details>
"""


def _validation_row(entry: LogEntry, metrics: Sequence[str], *, is_best: bool) -> str:
    forms = {"step": ",.0f", "loss": ".3f", **dict.fromkeys(metrics, ".2f")}
    cells = [(finite_number(entry, key), form) for key, form in forms.items()]
    texts = ["" if value is None else f"{value:{form}}" for value, form in cells]
    row = "".join(f"<td>{text}</td>" for text in texts)
    return f'<tr class="best">{row}</tr>\n' if is_best else f"<tr>{row}</tr>\n"


def _notices(notices: Sequence[LogEntry]) -> str:
    items = [f"<li>{escape(str(entry.get('text', '')))}</li>" for entry in notices]
    return f'<div class="panel"><ul>{"".join(items)}</ul></div>\n' if items else ""


def _settings(config_yaml: str) -> str:
    if not config_yaml.strip():
        return ""
    return f"""<details class="panel"><summary>all settings</summary>
<pre>{escape(config_yaml)}</pre></details>
"""


def _environment(environment: Mapping[str, str]) -> str:
    rows = [f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in environment.items()]
    return f'<div class="panel"><dl>{"".join(rows)}</dl></div>\n' if rows else ""


_MAX_VERSIONS = 100  # per sentence: a long run has thousands
_N_VISIBLE = 6  # versions shown at the start and at the end; those in between are collapsed
_INTRO = '<p class="muted intro">Words that differ from the reference are gray.</p>\n'
_MAX_CHARACTERS = 400  # per text: early checkpoints may output very long translations


@dataclass(frozen=True)
class SampleVersion:
    """A translation and the range of consecutive validations that output it."""

    first_step: float
    last_step: float
    text: str


def samples_html(validations: Sequence[LogEntry]) -> str:
    """Return each sample sentence with its reference and its translations over time."""
    sentences: dict[tuple[str, str], list[SampleVersion]] = {}
    for validation in validations:
        step = finite_number(validation, "step") or 0
        for sample in validation.get("samples") or ():
            sentence = str(sample.get("source", "")), str(sample.get("reference", ""))
            versions = sentences.setdefault(sentence, [])
            _add_version(versions, step, str(sample.get("translation", "")))
    return _INTRO * bool(sentences) + "".join(
        _sample(*sentence, versions) for sentence, versions in sentences.items()
    )


def _add_version(versions: list[SampleVersion], step: float, text: str) -> None:
    """Append the translation at `step`; extend the last version if the text is the same."""
    if versions and versions[-1].text == text:
        versions[-1] = SampleVersion(versions[-1].first_step, step, text)
    else:
        versions.append(SampleVersion(step, step, text))


def _sample(source: str, reference: str, versions: Sequence[SampleVersion]) -> str:
    rows = [
        _row(_steps(version), highlight_matches(version.text, reference))
        for version in subsample(versions, _MAX_VERSIONS)
    ]
    is_long = len(rows) > 3 * _N_VISIBLE
    hidden = rows[_N_VISIBLE:-_N_VISIBLE] if is_long else []
    visible = [rows[:_N_VISIBLE], rows[-_N_VISIBLE:]] if is_long else [rows]
    collapsed = f"""<details><summary>{len(hidden)} more</summary>{_translations(hidden)}</details>
"""
    return f"""<article class="sample">
<dl>{_row("source", escape(_clip(source)))}{_row("reference", escape(_clip(reference)))}</dl>
<hr>{collapsed.join(_translations(part) for part in visible)}
</article>
"""


def _translations(rows: Sequence[str]) -> str:
    return f'<dl class="translations">{"".join(rows)}</dl>'


def highlight_matches(text: str, reference: str) -> str:
    """Return `text` as HTML; words that match the reference, in the same order, are bold."""
    words = _clip(text).split()
    matcher = SequenceMatcher(None, words, _clip(reference).split(), autojunk=False)
    parts, end = [], 0
    for block in matcher.get_matching_blocks():
        parts.append(escape(" ".join(words[end : block.a])))
        match = " ".join(words[block.a : block.a + block.size])
        parts.append(f"<b>{escape(match)}</b>" if match else "")
        end = block.a + block.size
    return " ".join(part for part in parts if part)


def _row(label: str, content: str) -> str:
    # Source and target may be written in different directions.
    return f'<dt>{label}</dt><dd dir="auto">{content}</dd>'


def _steps(version: SampleVersion) -> str:
    first, last = f"{version.first_step:,.0f}", f"{version.last_step:,.0f}"
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"

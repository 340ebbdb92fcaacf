"""report.html: a run to look at, as one file that needs nothing else."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import takewhile
from typing import Any

from mtcli.report.charts import chart_html
from mtcli.report.curves import LoggedEvent, named, number, surviving
from mtcli.report.figures import main_charts, rollback_text, side_charts
from mtcli.report.headline import best_validation, headline_html
from mtcli.report.page import page
from mtcli.report.samples import samples_html


def report_html(
    events: Sequence[Mapping[str, Any]], config_yaml: str, environment: Mapping[str, str]
) -> str:
    """The report of a run, complete or not, from the lines of its log.jsonl."""
    kept = surviving(events)
    parts = [
        headline_html(kept),
        _section("Rollbacks", _rollbacks(kept)),
        _section("Curves", _charts(kept, _optimizer(config_yaml))),
        _section("Translations through time", samples_html(named(kept, "validation"))),
        _section("Validations", _validations(kept)),
        _section("Plan", _plan(kept, config_yaml)),
        _section("Environment", _environment(environment)),
    ]
    return page("Training report", "".join(parts))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>\n{content}</section>\n" if content else ""


def _optimizer(config_yaml: str) -> str:
    found = re.search(r"^  optimizer: (\w+)$", config_yaml, re.MULTILINE)
    return found[1] if found else ""


def _charts(events: Sequence[LoggedEvent], optimizer: str) -> str:
    main = [chart_html(chart, f"main-{i}") for i, chart in enumerate(main_charts(events))]
    side = [
        chart_html(chart, f"side-{i}") for i, chart in enumerate(side_charts(events, optimizer))
    ]
    if not any([*main, *side]):
        return ""
    return f"""<div class="charts">{"".join(main)}</div>
<div class="charts side">{"".join(side)}</div>
"""


def _rollbacks(events: Sequence[LoggedEvent]) -> str:
    items = [f"<li>{escape(rollback_text(event))}</li>" for event in named(events, "rollback")]
    return f'<div class="panel alarm"><ul>{"".join(items)}</ul></div>\n' if items else ""


def _validations(events: Sequence[LoggedEvent]) -> str:
    """Every validation as a row, folded away: the curves show them first."""
    validations, best = named(events, "validation"), best_validation(events)
    if best is None:
        return ""
    rows = [_validation(event, is_best=event is best) for event in validations]
    count = f"{len(rows)} validations" if len(rows) > 1 else "one validation"
    signature = escape(str(best.get("signature", "")))
    return f"""<details class="panel"><summary>{count} in numbers</summary>
<table><tr><th>step</th><th>dev loss</th><th>BLEU</th><th>chrF</th></tr>
{"".join(rows)}</table>
<p class="quiet">BLEU: {signature}</p></details>
"""


def _validation(event: LoggedEvent, *, is_best: bool) -> str:
    numbers = (number(event, "step"), number(event, "loss"), number(event, "bleu"))
    cells = zip((*numbers, number(event, "chrf")), (",.0f", ".3f", ".2f", ".2f"), strict=True)
    texts = ["" if value is None else f"{value:{form}}" for value, form in cells]
    row = "".join(f"<td>{text}</td>" for text in texts)
    return f'<tr class="best">{row}</tr>\n' if is_best else f"<tr>{row}</tr>\n"


def _plan(events: Sequence[LoggedEvent], config_yaml: str) -> str:
    """What was said before the first step, what was said later, and all settings."""
    start = list(takewhile(lambda event: event.get("event") == "notice", events))
    later = named(events[len(start) :], "notice")
    config = f"<pre>{escape(config_yaml)}</pre>" if config_yaml.strip() else ""
    return "".join(
        [
            f'<div class="panel">{_notices(start)}</div>\n' if start else "",
            f'<div class="panel">{_notices(later)}</div>\n' if later else "",
            f'<details class="panel"><summary>all settings</summary>{config}</details>\n'
            if config
            else "",
        ]
    )


def _notices(notices: Sequence[LoggedEvent]) -> str:
    items = [f"<li>{escape(str(event.get('text', '')))}</li>" for event in notices]
    return f"<ul>{''.join(items)}</ul>"


def _environment(environment: Mapping[str, str]) -> str:
    rows = [f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in environment.items()]
    return f'<div class="panel"><dl>{"".join(rows)}</dl></div>\n' if rows else ""

"""Evaluation results as text, LaTeX and Markdown."""

import re
from collections.abc import Callable, Sequence

from mtcli.evaluation.results import (
    SIGNIFICANCE_LEVEL,
    Comparison,
    Difference,
    Evaluation,
    Score,
)

P_VALUE_MEANING = (
    "The p-value is roughly the probability that chance alone causes a difference from the "
    "baseline that is at least this large"
)
_MEANING = f"{P_VALUE_MEANING}; * marks p < {SIGNIFICANCE_LEVEL}."
_METHODS = {
    "bootstrap": "paired bootstrap resampling",
    "randomization": "approximate randomization",
}
_LATEX = re.compile(r"[\\{}$&#_%~^]")
_LATEX_NAMES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def format_text(evaluation: Evaluation) -> str:
    """Return scores with signatures or, for several systems, a table of scores and differences."""
    comparison = evaluation.comparison
    if comparison is None:
        return "\n".join(map(str, evaluation.scores.values()))
    rows = [("metric", "system", "score", "difference", "p-value")]
    for name, score in evaluation.scores.items():
        for i, system in enumerate(evaluation.systems):
            label = "" if i else score.metric
            found = comparison.find(system.name, name)
            cells = _difference_cells(found) if found else ("baseline", "")
            rows.append((label, system.name, _score_text(system.scores[name]), *cells))
    signatures = [
        f"{score.metric}  [{comparison.signatures[name]}]"
        for name, score in evaluation.scores.items()
    ]
    return "\n".join([*align_rows(rows), "", describe_test(comparison), _MEANING, "", *signatures])


def format_markdown(evaluation: Evaluation) -> str:
    """Return a Markdown table with one row per system, and the signatures."""
    rows = _wide_rows(evaluation, "±", lambda text: text.replace("|", r"\|"))
    width = len(rows[0])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"| --- |{' ---: |' * (width - 1)}")
    notes = [f"{name}: `{signature}`" for name, signature in _signatures(evaluation)]
    return "\n".join([*lines, "", *_explanation(evaluation), "  \n".join(notes)])


def format_latex(evaluation: Evaluation) -> str:
    """Return a LaTeX table (booktabs) with one row per system, and the signatures as comments."""
    header, *rows = _wide_rows(evaluation, r"$\pm$", _escape_latex)
    notes = [f"{name}: {signature}" for name, signature in _signatures(evaluation)]
    return "\n".join(
        [
            *(f"% {line}" for line in [*_explanation(evaluation), *notes] if line),
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            rf"{' & '.join(header)} \\",
            r"\midrule",
            *(rf"{' & '.join(row)} \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


FORMATS: dict[str, Callable[[Evaluation], str]] = {
    "text": format_text,
    "latex": format_latex,
    "markdown": format_markdown,
    "json": Evaluation.to_json,
}


def describe_test(comparison: Comparison) -> str:
    """Return the baseline, method and settings of a significance test as text."""
    trials = "resamples" if comparison.method == "bootstrap" else "trials"
    return (
        f"baseline: {comparison.baseline}; {_METHODS[comparison.method]} with "
        f"{comparison.n_trials:,} {trials}, seed {comparison.seed}"
    )


def _score_text(score: Score, sign: str = "±") -> str:
    margin = f" {sign} {score.margin:.2f}" if score.margin is not None else ""
    return f"{score.value:.2f}{margin}"


def _difference_cells(difference: Difference) -> tuple[str, str]:
    mark = " *" if difference.is_significant else ""
    return f"{difference.difference:+.2f}", f"{difference.p_value:.4f}{mark}"


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _wide_rows(evaluation: Evaluation, sign: str, escape: Callable[[str], str]) -> list[list[str]]:
    """Return a header row, followed by one row per system with a cell for each metric."""
    rows = [["System", *(escape(score.metric) for score in evaluation.scores.values())]]
    for system in evaluation.systems:
        row = [escape(system.name)]
        for name, score in system.scores.items():
            comparison = evaluation.comparison
            found = comparison.find(system.name, name) if comparison else None
            p_value = f" (p = {_difference_cells(found)[1].replace(' ', '')})" if found else ""
            row.append(_score_text(score, sign) + p_value)
        rows.append(row)
    return rows


def _signatures(evaluation: Evaluation) -> list[tuple[str, str]]:
    comparison = evaluation.comparison
    return [
        (score.metric, comparison.signatures[name] if comparison else score.signature)
        for name, score in evaluation.scores.items()
    ]


def _explanation(evaluation: Evaluation) -> list[str]:
    comparison = evaluation.comparison
    return [describe_test(comparison), _MEANING, ""] if comparison else []


def _escape_latex(text: str) -> str:
    return _LATEX.sub(lambda match: _LATEX_NAMES.get(match[0], f"\\{match[0]}"), text)

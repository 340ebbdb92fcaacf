"""HTML report on a corpus check."""

from mtcli.data.quality.findings import CheckResult, LengthStats, length_class_labels
from mtcli.data.quality.text import summary
from mtcli.reporting.charts import Chart, Curve, chart_html
from mtcli.reporting.pages import Table, Tile, render_page

_TEMPLATE = "check.html.j2"


def check_page(result: CheckResult) -> str:
    """Return an HTML page with statistics, findings and the worst pairs."""
    return render_page(
        _TEMPLATE,
        {
            "result": result,
            "labels": _labels(result),
            "summary": summary(result),
            "tiles": _tiles(result),
            "overview": _overview(result),
            "lengths": chart_html(_length_chart(result), "lengths"),
        },
        ["charts.js"],
    )


def _labels(result: CheckResult) -> tuple[str, str]:
    """Return the names of the two sides."""
    languages = result.source_lang, result.target_lang
    names = ("source", "target")
    labels = [f"{n} ({code})" if code else n for n, code in zip(names, languages, strict=True)]
    return labels[0], labels[1]


def _tiles(result: CheckResult) -> list[Tile]:
    sides = zip(_labels(result), (result.source, result.target), strict=True)
    return [
        Tile("pairs", f"{result.n_pairs:,}"),
        *(Tile(label, f"{stats.mean:.0f}", _length_note(stats)) for label, stats in sides),
        Tile("kinds of problems", str(len(result.problems))),
    ]


def _length_note(stats: LengthStats) -> str:
    return f"characters per line; median {stats.median:,}, longest {stats.longest:,}"


def _overview(result: CheckResult) -> Table:
    rows = [
        [finding.title, "problem" if finding.is_problem else "note"] for finding in result.findings
    ]
    return Table(["finding", "level"], rows, "Findings")


def _length_chart(result: CheckResult) -> Chart:
    labels = length_class_labels()
    histograms = result.source.histogram, result.target.histogram
    used = [i for i in range(len(labels)) if any(histogram[i] for histogram in histograms)]
    classes = range(used[0], used[-1] + 1) if used else range(0)
    curves = [
        Curve(label, [(float(x), float(histogram[i])) for x, i in enumerate(classes)], color)
        for label, histogram, color in zip(
            _labels(result), histograms, ("blue", "orange"), strict=True
        )
    ]
    return Chart(
        "Lines by length",
        "Number of lines by their length in characters, for both sides.",
        curves,
        digits=0,
        x_name="characters",
        categories=[labels[i] for i in classes],
        kind="bars",
    )

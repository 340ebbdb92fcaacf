"""Pages in a real browser: labels, width, interaction, and the content security policy."""

import pytest

from browser import overflowing_elements
from mtcli.reporting.charts import Chart, Curve, chart_html
from mtcli.reporting.html_report import report_html
from test_html_report import HOSTILE, RUN, make_step, make_validation

# Script that returns the labels that extend beyond the SVG or overlap the next label.
CLIPPED = """() => {
  const faults = [];
  for (const svg of document.querySelectorAll("svg")) {
    const area = svg.getBoundingClientRect();
    for (const axis of ["x", "y"]) {
      const boxes = [...svg.querySelectorAll(`text.${axis}`)].map(label => {
        const box = label.getBoundingClientRect();
        if (box.left < area.left - 0.5 || box.right > area.right + 0.5 || box.top < area.top - 4 ||
            box.bottom > area.bottom + 0.5) faults.push(label.textContent);
        return box;
      });
      if (axis == "x") boxes.slice(1).forEach((box, index) => {
        if (box.left < boxes[index].right) faults.push(`overlap ${index}`);
      });
    }
  }
  return faults;
}"""


def page_with(charts: list[Chart]) -> str:
    fragments = "".join(chart_html(chart, f"c{i}") for i, chart in enumerate(charts))
    return report_html([], "", {}).replace("</main>", f"{fragments}</main>")


def category_chart(n: int, name: str, kind: str) -> Chart:
    points = [(i, 10_000.0 + i) for i in range(n)]
    intervals = [(value - 900, value + 900) for _, value in points]
    curves = [Curve(color, points, color, intervals=intervals) for color in ("blue", "orange")]
    names = [f"{name}{i}" for i in range(n)]
    return Chart("t", "d", curves, digits=0, categories=names, x_name="length", kind=kind)


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_labels_of_charts_are_not_clipped(open_page, width):
    steps = [make_step(number) for number in range(10, 1000, 10)]
    fast = [{**step, "n_tokens": 9_950, "n_positions": 11_000, "seconds": 1} for step in steps]
    page = open_page(report_html([*fast, make_validation(100, 11.11)], "", {}), width=width)
    assert "10.0k" in page.locator("svg text.y").all_text_contents()
    assert page.evaluate(CLIPPED) == []


@pytest.mark.parametrize("width", [320, 1280])
def test_labels_of_categories_do_not_overlap(open_page, width):
    charts = [
        category_chart(n, name, kind)
        for n in (1, 2, 9, 40)
        for name in ("", "10–2", "長い名前", "a very long name of a system " * 3)
        for kind in ("lines", "bars")
    ]
    page = open_page(page_with(charts), width=width)
    assert page.locator("svg").count() == len(charts)
    assert page.evaluate(CLIPPED) == []
    assert overflowing_elements(page) == []


def test_a_chart_over_categories_has_a_table_of_its_values(open_page):
    page = open_page(page_with([category_chart(3, "bin ", "lines")]))
    page.get_by_text("Show the values").click()
    rows = page.locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        [f"bin {i}", f"{10_000 + i:,}", f"{10_000 + i:,}"] for i in range(3)
    ]


def test_the_legend_shows_the_values_at_the_pointer(open_page):
    page = open_page(report_html(RUN, "", {}))
    chart = page.locator(".chart", has_text="Translation quality")
    assert "22.22" in chart.locator(".legend").inner_text()
    box = chart.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + box["height"] / 2)
    assert "11.11" in chart.locator(".legend").inner_text()
    page.mouse.move(0, 0)
    assert "22.22" in chart.locator(".legend").inner_text()


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [320, 1280])
def test_hostile_text_in_a_log_is_shown_as_text(open_page, width, is_dark):
    hostile = HOSTILE + "x" * 3000
    sample = {"source": hostile, "reference": hostile, "translation": hostile}
    events = [
        {"event": "notice", "text": hostile},
        *RUN,
        {**make_validation(300, 1.0), "signature": hostile, "samples": [sample]},
    ]
    page = open_page(report_html(events, hostile, {hostile: hostile}), width=width, is_dark=is_dark)
    assert page.get_by_text("alert('x')").count() >= 5
    assert overflowing_elements(page) == []

"""The evaluation report, in a real browser where possible."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from browser import overflowing_elements
from evaluations import HOSTILE, make_evaluation, make_hostile_evaluation, with_analysis
from mtcli.cli import app
from mtcli.errors import DataError, EngineError
from mtcli.evaluation import report_maps
from mtcli.evaluation.report import ReportContent, evaluation_page
from mtcli.evaluation.report_maps import TracedMaps, choose_map_lines, trace_maps
from mtcli.evaluation.sentences import sentence_scores, short_names
from mtcli.reporting.attention.maps import SentenceAttention
from mtcli.translation.attention import LineAttention
from parsed_page import Page
from test_attention_page import check_every_map, check_map, choose, control, make_sentence

FIRST = make_sentence(["▁source", "▁<b>1</b>"], ["▁Satz", "1"])
SECOND = make_sentence(["▁source", "▁<b>1</b>"], ["▁Satz", "▁zwei"], heads=(0, 1), seed=3)


class FakeTranslator:
    """Returns the same attention for each line, or raises an error."""

    def __init__(self, result: SentenceAttention | Exception) -> None:
        self.result = result

    def attention(self, text: str, reference: str) -> LineAttention:
        if isinstance(self.result, Exception):
            raise self.result
        part = replace(self.result, source=text, target=reference)
        return LineAttention(text, reference, (part,) if text else ())


def trace(lines, *results, notify=lambda _: None) -> TracedMaps:
    evaluation = make_evaluation(n_systems=len(results))
    return trace_maps(evaluation, dict(enumerate(map(FakeTranslator, results))), lines, notify)


CONTENT = ReportContent(None, trace([10], FIRST, SECOND).maps, "Attention maps of 1 line.")


@pytest.fixture(scope="module")
def report() -> str:
    evaluation = with_analysis(make_evaluation(), "number-lost", {3, 10, 20})
    return evaluation_page(evaluation, content=CONTENT)


@pytest.fixture(scope="module")
def hostile_report() -> str:
    return evaluation_page(make_hostile_evaluation())


def line_numbers(page) -> list[int]:
    texts = page.locator("#sentence-list h3 > span:first-child").all_inner_texts()
    return [int(text.removeprefix("Line ")) for text in texts]


def second_scores(page) -> list[float]:
    texts = page.locator("#sentence-list dl .score:text('chrF')").all_inner_texts()
    return [float(text.split()[1]) for text in texts[1::2]]


def test_the_report_shows_scores_and_comparison_without_a_script(open_page, report):
    page = open_page(report, script=False)
    text = page.locator("body").inner_text()
    for expected in (
        "test.en, en to de, 60 lines",
        "40.00 ± 1.50",
        "-10.00",
        "0.0010",
        "requires JavaScript",
    ):
        assert expected in text
    assert not page.locator("#sentence-browser").is_visible()


def test_sentences_are_sorted_by_score_and_by_difference(open_page, report):
    page = open_page(report)
    assert page.locator("#sort").input_value() == "difference"
    most_wrong = {7, 14, 21, 28, 35, 42, 49, 56}  # six wrong words
    assert set(line_numbers(page)[:8]) == most_wrong
    page.select_option("#sort", "highest-1")
    highest = second_scores(page)
    page.select_option("#sort", "lowest-1")
    lowest = second_scores(page)
    assert highest == sorted(highest, reverse=True)
    assert lowest == sorted(lowest)
    assert highest[0] > lowest[0]
    page.select_option("#sort", "line")
    assert line_numbers(page) == [*range(1, 26)]
    page.select_option("#sort", "worse-1")
    assert second_scores(page) == lowest


def test_search_finds_line_numbers_and_text_on_every_side(open_page, report):
    page = open_page(report)
    status = page.locator("#status")
    for query, n in (("NUMBER 17 WITH", 1), ("satz 17 ", 1), ("falsch", 51), ("#17", 1)):
        page.fill("#search", query)
        page.wait_for_function(
            "n => document.getElementById('status').textContent.startsWith(`${n} of 60 `)", arg=n
        )
    assert line_numbers(page) == [17]
    page.fill("#search", "not in any line")
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('no ')")
    assert line_numbers(page) == []
    page.fill("#search", "")
    page.wait_for_function("() => document.getElementById('status').textContent.startsWith('60 ')")
    assert "showing 1 to 25" in status.inner_text()


def test_filters_show_the_lines_with_a_finding(open_page, report):
    page = open_page(report)
    options = page.locator("#filter option").all_inner_texts()
    assert "number-lost (3)" in options
    assert not any("empty" in option for option in options)  # no line has this finding
    page.select_option("#filter", label="number-lost (3)")
    assert sorted(line_numbers(page)) == [4, 11, 21]
    assert page.locator(".badge").all_inner_texts() == ["number-lost"] * 3
    page.select_option("#filter", "map")
    assert line_numbers(page) == [11]
    page.select_option("#filter", "different")
    assert "51 of 60" in page.locator("#status").inner_text()


def test_the_tables_of_the_analysis_are_in_the_report(open_page, report):
    page = open_page(report)
    page.get_by_text("Length and n-gram precision").click()
    assert "length ratio" in page.locator("body").inner_text()
    without = open_page(evaluation_page(make_evaluation()))
    assert without.locator("h2", has_text="Analysis").count() == 0
    assert "To filter sentences by problem, use --analysis" in without.locator("body").inner_text()


def test_words_that_differ_are_marked(open_page, report):
    page = open_page(report)
    page.fill("#search", "#3")
    page.wait_for_selector("#line-3")
    assert page.locator("mark").all_inner_texts() == ["falsch", "falsch"]
    page.select_option("#mark", "system")
    assert page.locator("mark").all_inner_texts() == ["falsch", "falsch"]
    page.select_option("#mark", "none")
    assert page.locator("mark").count() == 0
    assert (
        "Satz 2 eins zwei drei vier fünf falsch falsch"
        in page.locator("#sentence-list").inner_text()
    )


def test_an_attention_map_opens(open_page, report):
    page = open_page(report)
    page.select_option("#filter", "map")
    assert page.locator("table.attention").count() == 0
    page.get_by_text("Attention of second").click()
    table = page.locator("table.attention")
    table.wait_for()
    assert table.locator("thead th").all_inner_texts() == ["source", "<b>1</b>", "</s>"]
    assert table.locator("tbody th").all_inner_texts() == ["Satz", "zwei", "</s>"]
    check_map(page, SECOND.map().weights)
    weight = round(100 * SECOND.map().weights[0, 0])
    assert abs(weight - int(table.locator("tbody td").first.text_content()[:-1])) <= 2


def test_kind_layer_and_head_of_a_map_can_be_switched(open_page, report):
    page = open_page(report)
    page.select_option("#filter", "map")
    page.get_by_text("Attention of first").click()
    check_every_map(page, FIRST)
    page.get_by_role("button", name="layer 1, head 2").click()
    check_map(page, FIRST.stacks["encoder"].weights[0, 1])
    page.get_by_text("Attention of second").click()  # the views are independent
    page.locator("table.attention").nth(1).wait_for()
    check_map(page.locator("details").nth(-1), SECOND.map().weights)
    names = page.get_by_role("region").evaluate_all(
        "nodes => nodes.map(node => node.getAttribute('aria-label'))"
    )
    assert len({*names}) == len(names)
    assert "line 11, first: encoder self-attention, layer 1, head 2" in names


def test_a_report_stores_all_heads_of_the_first_lines_only(open_page, monkeypatch):
    everything = trace([5, 3], FIRST, SECOND)
    assert everything.describe_detail() == ""
    sizes = {
        name: max(
            len(kind["weights"])
            for by_system in everything.maps.values()
            for part in by_system.values()
            for kind in part["kinds"]
            if kind["name"] == name
        )
        for name in ("cross-attention", "encoder self-attention")
    }
    # Space for the cross-attention of one line, and for the encoder of all lines.
    limit = 3 * sizes["cross-attention"]
    assert 4 * sizes["encoder self-attention"] < limit
    monkeypatch.setattr(report_maps, "MAX_CHARACTERS_PER_KIND", limit)
    traced = trace([5, 3], FIRST, SECOND)
    assert traced.n_complete["cross"] == 1
    assert "encoder" not in traced.n_complete  # complete
    assert "only some lines have maps of all layers and heads: 1 for cross-attention." in (
        traced.describe_detail()
    )
    assert traced.maps[5][0]["kinds"][0] == everything.maps[5][0]["kinds"][0]
    page = open_page(evaluation_page(make_evaluation(), content=ReportContent(None, traced.maps)))
    page.fill("#search", "#4")
    page.keyboard.press("Enter")
    page.get_by_text("Attention of second").click()
    page.wait_for_selector("table.attention")
    check_map(page, SECOND.map().weights)
    assert page.locator("caption").inner_text().startswith(SECOND.map().title)
    assert not control(page, "layer").is_visible()
    choose(page, "kind", label="encoder self-attention")
    choose(page, "head", label="head 2")
    check_map(page, SECOND.stacks["encoder"].weights[0, 1])


def test_lines_and_systems_without_attention_have_no_maps():
    messages = []
    assert trace([1, 2], FIRST, EngineError("no attention")).maps.keys() == {1, 2}
    assert [*trace([1], FIRST, EngineError("no attention")).maps[1]] == [0]
    traced = trace([1], FIRST, DataError("too long", hint="x"), notify=messages.append)
    assert [*traced.maps[1]] == [0]
    assert messages == ["warning: runs/second: no attention map for line 2: too long"]
    assert trace([1], EngineError("no attention")).maps == {}


def test_a_map_stays_open_after_enter_in_the_search_field(open_page, report):
    page = open_page(report)
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.fill("#search", "#11")
    page.keyboard.press("Enter")
    page.get_by_text("Attention of second").click()
    page.wait_for_selector("table.attention")
    page.clock.run_for(5000)  # the delayed search of the input event must not run again
    assert page.locator("table.attention").count() == 1


def test_the_report_can_be_used_with_the_keyboard_only(open_page, report):
    page = open_page(report)

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        pytest.fail(f"Tab does not reach {selector}")

    tab_to("#search")
    page.keyboard.type("#11")
    page.keyboard.press("Enter")
    assert line_numbers(page) == [11]
    tab_to("details summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("table.attention")
    tab_to(".attention-view select")
    page.keyboard.press("ArrowDown")  # decoder self-attention
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")  # layer 1
    page.keyboard.press("Tab")
    page.keyboard.press("End")  # head 2
    check_map(page, FIRST.stacks["decoder"].weights[0, 1])
    tab_to(".overview button")
    page.keyboard.press("Enter")
    check_map(page, FIRST.stacks["decoder"].weights[0, 0])
    page.reload()
    tab_to("#sort")
    page.keyboard.type("line")
    assert line_numbers(page)[0] == 1
    tab_to("#next")
    page.keyboard.press("Enter")
    assert line_numbers(page) == [*range(26, 51)]
    assert page.evaluate("document.activeElement.id") == "line-26"
    outline = page.locator("#search").evaluate(
        "element => { element.focus(); return getComputedStyle(element).outlineStyle; }"
    )
    assert outline == "solid"


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [320, 1280])
def test_hostile_text_is_shown_as_text(open_page, hostile_report, width, is_dark):
    page = open_page(hostile_report, width=width, is_dark=is_dark)
    text = page.locator("body").inner_text()
    assert "<script>alert('x')</script><img src=http://example.org/x.png" in text
    assert "</script><script>window.hacked = true</script><!--" in text
    assert "\N{REPLACEMENT CHARACTER}[31mcontrol" in text
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert overflowing_elements(page) == []


def test_a_long_line_is_truncated_until_the_user_expands_it(open_page, hostile_report):
    page = open_page(hostile_report)
    shown = page.locator("#sentence-list").inner_text()
    assert "x" * 500 in shown
    assert "x" * 700 not in shown
    page.get_by_text("Show all 100,000 characters").first.click()
    assert "x" * 100_000 in page.locator("#sentence-list").inner_text()
    assert overflowing_elements(page) == []


def test_a_report_needs_no_source_no_decoding_and_no_second_system(open_page):
    evaluation = make_evaluation(3, n_systems=1)
    system = replace(evaluation.systems[0], decoding=None)
    test_set = replace(evaluation.test_set, source=None)
    page = open_page(evaluation_page(replace(evaluation, systems=(system,), test_set=test_set)))
    text = page.locator("body").inner_text()
    assert "40.00" in text
    assert "Length of the reference in words" in text
    assert "Comparison" not in text
    assert "source" not in page.locator("#sentence-list").inner_text()
    assert line_numbers(page) == [1, 2, 3]


def test_hostile_text_adds_no_elements_to_the_report(hostile_report):
    page = Page(hostile_report)
    assert [a.get("type") for a in page.attributes_of("script")].count("application/json") == 1
    assert not any(name == "img" for name, _ in page.tags)
    for _, attributes in page.tags:
        assert not {"src", "href", "srcset", "action", "onerror"} & set(attributes)


def test_sentence_scores_are_those_of_sacrebleu():
    scores = sentence_scores(["ein Hund", "eine Katze"], [["ein Hund", "eine Maus"]])
    assert scores[0] == pytest.approx(100)
    assert 0 < scores[1] < 100
    assert sentence_scores(HOSTILE, [HOSTILE])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["/x/runs/a/", "/x/runs/b"], ["a", "b"]),
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["runs/a"], ["a"]),
        (["same", "same"], ["same", "same"]),
        (["/", ""], ["/", ""]),
    ],
)
def test_short_names_omit_common_directories(names, expected):
    assert short_names(names) == expected


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Return the paths of a source, a reference and a translation file."""
    texts = [
        ["the man sees", "my dog likes bread", "the woman", ""],
        ["der Mann sieht", "my dog likes bread", "die Frau", "leer"],
        ["der Mann", "<b>mein Hund</b>", "", "leer"],
    ]
    paths = [tmp_path / name for name in ("test.en", "test.de", "<i>output.de")]
    for path, lines in zip(paths, texts, strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_evaluate_writes_a_report_with_attention_maps(open_page, tmp_path, copying_model, files):
    path = tmp_path / "report.html"
    result = run("evaluate", copying_model, *files[:2], "--report", path, "--maps", 2)
    assert result.exit_code == 0, result.stderr
    assert f"report: {path}" in result.stderr
    page = open_page(path.read_text(encoding="utf-8"))
    page.select_option("#filter", "map")
    assert "2 of 4 sentences" in page.locator("#status").inner_text()
    page.get_by_text("Attention", exact=True).first.click()
    page.locator("table.attention tbody tr").nth(1).wait_for()  # the map is drawn after the click


def test_the_user_chooses_the_lines_with_maps(open_page, tmp_path, copying_model, files):
    path = tmp_path / "report.html"
    lines = ["--map-line", 3, "--map-line", 1, "--map-line", 4, "--map-line", 99]  # 4 is blank
    result = run("evaluate", copying_model, *files[:2], "--report", path, *lines)
    assert result.exit_code == 0, result.stderr
    assert "warning: ignoring --map-line 99: the test set has 4 lines" in result.stderr
    page = open_page(path.read_text(encoding="utf-8"))
    page.select_option("#filter", "map")
    assert sorted(line_numbers(page)) == [1, 3]
    assert "Lines with attention maps: 2, selected with --map-line" in page.inner_text("body")


def test_the_report_on_translation_files_has_no_maps(open_page, tmp_path, files):
    path = tmp_path / "report.html"
    for _ in range(2):  # the second report replaces the first
        hypothesis = ["--hypothesis", files[2], files[1]]
        result = run("evaluate", *hypothesis, "--report", path)
        assert result.exit_code == 0, result.stderr
    page = open_page(path.read_text(encoding="utf-8"))
    assert "<i>output.de" in page.locator("body").inner_text()
    assert "<b>mein Hund</b>" in page.locator("#sentence-list").inner_text()
    assert not any("map" in text for text in page.locator("#filter option").all_inner_texts())


def test_a_report_does_not_replace_another_file(tmp_path, files):
    other = tmp_path / "test.html"
    other.write_text("<p>mine</p>")
    result = run("evaluate", "--hypothesis", files[2], files[1], "--report", other)
    assert result.exit_code == 1
    assert f"{other} already exists and is not an mtcli report" in result.stderr
    assert not result.stdout
    assert other.read_text() == "<p>mine</p>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--maps", 5], "--maps requires --report"),
        (["--map-line", 5], "--map-line requires --report"),
        (["--report", "r.html", "--maps", 201], "--maps 201 is out of range: must be 0 to 200"),
        (["--report", "r.html", "--map-line", 0], "--map-line must be at least 1"),
        (["--report", "r.html", *["--map-line", 1] * 201], "201 values of --map-line: at most 200"),
    ],
)
def test_invalid_report_options_are_refused(copying_model, files, options, message):
    result = run("evaluate", copying_model, *files[:2], *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_maps_are_chosen_by_score_difference_and_length():
    evaluation = make_evaluation(30)
    scores = [[100.0] * 30, [100.0] * 30]
    scores[0][7] = 1.0  # lowest score of the first system, and largest difference
    scores[1][11] = 50.0  # second largest difference
    assert evaluation.test_set.source is not None
    longest = max(range(30), key=lambda i: len(evaluation.test_set.source[i]))
    assert choose_map_lines(evaluation, scores, 2) == [7, longest]
    assert {7, 11, longest} <= set(choose_map_lines(evaluation, scores, 5))
    assert sorted(choose_map_lines(evaluation, scores, 200)) == [*range(30)]
    assert choose_map_lines(evaluation, scores, 0) == []

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.report import report_html
from mtcli.report.charts import MAX_POINTS, Chart, Curve, chart_html, round_ticks, tick_labels
from mtcli.report.curves import smoothed, surviving, thinned
from mtcli.report.samples import marked

VOID = {"meta", "hr", "br", "link", "img", "input"}
EVIL = "<script>alert('x')</script> & \"<b>\" http://example.org/x.png"


class Page(HTMLParser):
    """A page taken apart; an end without a beginning, or the reverse, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []  # what a person reads
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def step(number: int) -> dict[str, Any]:
    return {
        "event": "step",
        "time": 1.7e9 + number,
        "step": number,
        "steps": 100_000,
        "epoch": 0,
        "loss": 2 + 6 / number,
        "learning_rate": 0.02,
        "n_words": 10,
        "n_tokens": 20,
        "n_positions": 25,
        "seconds": 0.01,
    }


def validation(number: int, bleu: float, said: str = "ein Hund") -> dict[str, Any]:
    return {
        "event": "validation",
        "time": 1.7e9 + number,
        "step": number,
        "loss": 1.5,
        "bleu": bleu,
        "chrf": bleu + 20,
        "signature": "nrefs:1",
        "is_best": True,
        "seconds": 1.0,
        "samples": [{"source": "a man", "reference": "ein Mann", "translation": said}],
    }


NOTICE = {"event": "notice", "time": 1.7e9, "text": "data: 29,000 training pairs"}
ROLLBACK = {
    "event": "rollback",
    "time": 1.7e9 + 150,
    "step": 150,
    "to_step": 100,
    "reason": "the loss is not a number",
    "factor": 0.5,
}
FINISHED = {
    "event": "finished",
    "time": 1.7e9 + 9000,
    "step": 300,
    "best_step": 200,
    "bleu": 22.22,
    "signature": "nrefs:1",
    "reason": "all steps done",
    "weights": "the mean of steps 200 and 300",
}
RUN = [
    NOTICE,
    *(step(number) for number in range(10, 110, 10)),
    validation(100, 11.11),
    *(step(number) for number in range(110, 210, 10)),
    validation(200, 22.22, "ein Mann"),
]


def report(events: list[dict[str, Any]], config: str = "a: 1", **environment: str) -> Page:
    text = report_html(events, config, environment)
    assert "nan" not in re.findall(r"[a-z]+", text.split("<body>")[1].split("<script>")[0])
    return Page(text)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [NOTICE],
        [step(10)],
        [validation(100, 11.11)],
        [FINISHED],
        [ROLLBACK],
        [{}, {"event": "unknown"}, {"event": "step"}, {"event": "validation"}],
        [{"event": "step", "step": 10, "loss": math.nan, "seconds": 0, "n_tokens": 1}],
        RUN,
        [*RUN, FINISHED],
    ],
    ids=lambda events: f"{len(events)} events",
)
def test_any_log_gives_a_page(events):
    assert "Training report" in report(events).text


fields = st.sampled_from(["step", "steps", "loss", "bleu", "chrf", "n_tokens", "n_positions"])
others = st.sampled_from(["seconds", "learning_rate", "to_step", "factor"])
values = st.one_of(st.none(), st.integers(-9, 10**9), st.floats(width=32), st.text(max_size=3))
names = st.sampled_from(["notice", "step", "validation", "rollback", "finished"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(names, st.dictionaries(fields | others, values)), max_size=6))
def test_strange_numbers_do_no_harm(events):
    report([{"event": name, **content} for name, content in events])


def test_all_text_is_escaped():
    evil_sample = {"source": EVIL, "reference": EVIL, "translation": EVIL}
    events = [
        {"event": "notice", "text": EVIL},
        step(10),
        {**validation(20, 1.0, EVIL), "signature": EVIL},
        {**validation(20, 1.0), "signature": EVIL, "samples": [evil_sample]},
        {**ROLLBACK, "reason": EVIL},
        {**FINISHED, "reason": EVIL, "weights": EVIL},
    ]
    page = Page(report_html(events, EVIL, {EVIL: EVIL}))
    assert len(page.all("script")) == 1  # our own
    assert page.text.count("alert('x')") >= 9
    assert not any(name == "img" for name, _ in page.tags)


def test_the_page_needs_nothing_but_itself():
    text = report_html([*RUN, {"event": "notice", "text": EVIL}], "", {})
    page = Page(text)
    for _, attributes in page.tags:
        assert not {"src", "href", "xlink:href", "data", "srcset", "action"} & set(attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert {"content": "width=device-width, initial-scale=1", "name": "viewport"} in page.all(
        "meta"
    )


def test_the_headline_tells_state_progress_and_the_best():
    training, finished = report(RUN).text, report([*RUN, FINISHED]).text
    assert "Training report training step 200 of 100,000" in training
    assert "Training report finished" in finished
    assert "the mean of steps 200 and 300" in finished
    assert "dev BLEU 22.22 best, step 200" in training


def test_the_best_is_what_the_run_calls_so():
    worse = {**validation(200, 22.22), "is_best": False}
    text = report([validation(100, 11.11), worse]).text
    assert "dev BLEU 11.11 best, step 100" in text


def test_a_finished_report_headlines_the_delivered_weights():
    delivered = {**FINISHED, "bleu": 33.33}
    text = report([*RUN, delivered]).text
    assert "dev BLEU 33.33 the mean of steps 200 and 300" in text
    assert "22.22" not in text.partition("Curves")[0]
    earlier = {key: value for key, value in delivered.items() if key != "weights"}
    assert "dev BLEU 33.33 step 200" in report([*RUN, earlier]).text


CONTROL = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0xD800]))


def test_no_text_brings_control_characters_into_the_page():
    evil = f"before{CONTROL}\x1b[2Jafter"
    events = [
        {**NOTICE, "text": evil},
        {**validation(100, 11.11, evil), "signature": evil},
        {**ROLLBACK, "reason": evil},
        {**FINISHED, "reason": evil, "weights": evil},
    ]
    events[1]["samples"][0] |= {"source": evil, "reference": evil}
    page = report_html(events, f"train:\n  start_from: {evil}\n", {evil: evil})
    assert not set(CONTROL) & set(page)
    assert page.count("after") >= 9
    page.encode()


def test_the_learning_rate_is_that_of_the_optimizer():
    rates = {name: report(RUN, f"train:\n  optimizer: {name}\n").text for name in ("muon", "adamw")}
    assert "Learning rate of the layers' matrices by step; at most 0.02." in rates["muon"]
    assert "Learning rate by step; at most 0.02." in rates["adamw"]


DIGIT = 0.63 * 15  # width of a digit in the largest font of the page, as wide fonts have it


@given(
    st.floats(1e-7, 1e9, allow_nan=False),
    st.floats(1, 1e7, allow_nan=False),
    st.booleans(),
)
def test_no_label_of_an_axis_is_clipped(value, last, from_zero):
    curve = Curve("x", [(1, value / 3), (last, value)], "train")
    text = chart_html(Chart("t", "d", [curve], digits=1, from_zero=from_zero), "c")
    width = float(Page(text).all("svg")[0]["viewbox"].split()[2])
    labels = re.findall(r'<text class="([xy])" x="([\d.]+)"[^>]*>([^<]+)<', text)
    assert {axis for axis, _, _ in labels} == {"x", "y"}
    for axis, x, label in labels:
        size = DIGIT * len(label)
        assert float(x) - (size if axis == "y" else size / 2) >= 0
        assert float(x) + (0 if axis == "y" else size / 2) <= width


def test_every_validation_is_there_in_numbers():
    scores = [10 + i / 7 for i in range(150)]
    text = report([validation(100 * i, score) for i, score in enumerate(scores)]).text
    for score in scores:
        assert f" {score:.2f} {score + 20:.2f} " in text


def test_every_chart_can_be_read_aloud():
    page = report(RUN)
    identifiers = {a.get("id") for tag in ("title", "desc") for a in page.all(tag)}
    charts = page.all("svg")
    assert len(charts) == 5
    for chart in charts:
        assert chart["viewbox"]
        assert set(str(chart["aria-labelledby"]).split()) <= identifiers
    assert "BLEU: 11.11 at first, 22.22 at last" in page.text


def test_a_long_run_gives_short_curves_and_a_small_file():
    events = [NOTICE, *(step(number) for number in range(10, 200_000, 10))]
    events += [validation(number, number / 9000, f"{number} Hund") for number in range(1, 600)]
    text = report_html(events, "", {})
    curves = [str(line["points"]).split() for line in Page(text).all("polyline")]
    assert max(map(len, curves)) == MAX_POINTS
    assert len(text.encode()) < 400_000


def test_translations_of_a_sentence_stand_together_and_the_same_ones_only_once():
    events = [validation(100, 1, "eins"), validation(200, 2, "zwei"), validation(300, 3, "zwei")]
    text = report(events).text
    assert "source a man reference ein Mann step 100 eins step 200 to 300 zwei" in text


def test_what_the_model_said_at_every_validation_is_there():
    events = [validation(100 * i, 1.0, f"Wort{i}x") for i in range(1, 60)]
    text = report(events).text
    assert [f"Wort{i}x" in text for i in range(1, 60)] == [True] * 59


def test_words_that_agree_with_the_reference_are_set_off():
    assert (
        marked("Ein <Hund> schläft", "Ein Mann schläft") == "<b>Ein</b> &lt;Hund&gt; <b>schläft</b>"
    )
    assert marked("", "Ein Mann") == ""


def test_a_rollback_is_told_and_marked_and_what_it_undid_is_gone():
    events = [*RUN, ROLLBACK, step(110)]
    page = report(events)
    told = "step 150: the loss is not a number; back to step 100 with 0.5 times the learning rate"
    assert told in page.text
    marks = [line for line in page.all("line") if line.get("class") == "mark"]
    assert len(marks) == len(page.all("svg")) == 5
    grid = [line for line in page.all("line") if line.get("class") == "grid"]
    right_end = max(float(str(line["x2"])) for line in grid)
    assert all(float(str(mark["x1"])) <= right_end for mark in marks)
    assert "22.22" not in page.text
    kept = [event["step"] for event in surviving(events) if event["event"] == "step"]
    assert kept == [*range(10, 110, 10), 110]


def test_plan_and_environment_are_there():
    text = report([NOTICE, step(10)], "model:\n  arch: rnn\n", Python="3.11").text
    assert "Plan data: 29,000 training pairs" in text
    assert "arch: rnn" in text
    assert "Environment Python 3.11" in text


@given(st.lists(st.tuples(st.integers(), st.integers()), max_size=80), st.integers(2, 50))
def test_thinning_keeps_order_and_both_ends(points, limit):
    kept = thinned(points, limit)
    assert len(kept) == min(len(points), limit)
    rest = iter(points)
    assert all(point in rest for point in kept)
    assert kept[:1] + kept[-1:] == points[:1] + points[-1:]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_smoothing_stays_within_what_it_smooths(values):
    means = [mean for _, mean in smoothed(list(enumerate(values)))]
    assert len(means) == len(values)
    assert min(means) >= min(values) - 1e-3
    assert max(means) <= max(values) + 1e-3
    assert means[0] == pytest.approx(values[0])


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 8))
def test_ticks_are_few_and_even_and_enclose_the_range(low, width, count):
    ticks = round_ticks(low, low + width, count)
    slack = 1e-6 * max(1.0, abs(low), width)
    assert 2 <= len(ticks) <= count + 3
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + width - slack
    gaps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 8.5, ["0", "2.5", "5.0", "7.5", "10.0"]),
        (0, 0.02, ["0", "0.005", "0.010", "0.015", "0.020"]),
        (0, 9_000, ["0", "2.5k", "5.0k", "7.5k", "10.0k"]),
        (0, 7_500, ["0", "2,000", "4,000", "6,000", "8,000"]),
        (0, 95_000, ["0", "25k", "50k", "75k", "100k"]),
        (0, 2e-5, ["0", "5.0e-6", "1.0e-5", "1.5e-5", "2.0e-5"]),
    ],
)
def test_ticks_are_round_and_short(low, high, expected):
    assert tick_labels(round_ticks(low, high, 4)) == expected


def test_points_stand_where_the_axes_say():
    curve = Curve("x", [(0, 0.0), (50, 5.0), (100, 10.0)], "train")
    page = Page(chart_html(Chart("t", "d", [curve], digits=1), "c"))
    grid = [float(str(line["y1"])) for line in page.all("line") if line.get("class") == "grid"]
    line = str(page.all("polyline")[0]["points"]).split()
    places = [tuple(map(float, point.split(","))) for point in line]
    assert places[0][1] == pytest.approx(max(grid), abs=0.1)
    assert places[2][1] == pytest.approx(min(grid), abs=0.1)
    assert places[1] == pytest.approx(
        ((places[0][0] + places[2][0]) / 2, (max(grid) + min(grid)) / 2), abs=0.1
    )
    assert chart_html(Chart("t", "d", [Curve("x", [], "train")], digits=1), "c") == ""

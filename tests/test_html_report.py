import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.reporting.charts import MAX_POINTS
from mtcli.reporting.html_report import match_segments, report_html
from mtcli.reporting.log import drop_undone_entries
from parsed_page import Page

HOSTILE = "<script>alert('x')</script> & \"<b>\" http://example.org/x.png"


def make_step(number: int) -> dict[str, Any]:
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


def make_validation(number: int, bleu: float, translation: str = "ein Hund") -> dict[str, Any]:
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
        "samples": [{"source": "a man", "reference": "ein Mann", "translation": translation}],
    }


NOTICE = {"event": "notice", "time": 1.7e9, "text": "data: 29,000 training pairs"}
ROLLBACK = {
    "event": "rollback",
    "time": 1.7e9 + 150,
    "step": 150,
    "to_step": 100,
    "reason": "the loss is NaN or infinite",
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
    *(make_step(number) for number in range(10, 110, 10)),
    make_validation(100, 11.11),
    *(make_step(number) for number in range(110, 210, 10)),
    make_validation(200, 22.22, "ein Mann"),
]


def make_report(events: list[dict[str, Any]], config: str = "a: 1", **environment: str) -> Page:
    text = report_html(events, config, environment)
    assert "nan" not in re.findall(r"[a-z]+", text.split("<body>")[1].split("<script>")[0])
    return Page(text)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [NOTICE],
        [make_step(10)],
        [make_validation(100, 11.11)],
        [FINISHED],
        [ROLLBACK],
        [{}, {"event": "unknown"}, {"event": "step"}, {"event": "validation"}],
        [{"event": "step", "step": 10, "loss": math.nan, "seconds": 0, "n_tokens": 1}],
        RUN,
        [*RUN, FINISHED],
    ],
    ids=lambda events: f"{len(events)} events",
)
def test_every_log_produces_a_report(events):
    assert "Training report" in make_report(events).text


fields = st.sampled_from(["step", "steps", "loss", "bleu", "chrf", "n_tokens", "n_positions"])
others = st.sampled_from(["seconds", "learning_rate", "to_step", "factor"])
values = st.one_of(st.none(), st.integers(-9, 10**9), st.floats(width=32), st.text(max_size=3))
names = st.sampled_from(["notice", "step", "validation", "rollback", "finished"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(names, st.dictionaries(fields | others, values)), max_size=6))
def test_malformed_numbers_do_not_prevent_a_report(events):
    make_report([{"event": name, **content} for name, content in events])


def test_all_text_is_escaped():
    hostile_sample = {"source": HOSTILE, "reference": HOSTILE, "translation": HOSTILE}
    events = [
        {"event": "notice", "text": HOSTILE},
        make_step(10),
        {**make_validation(20, 1.0, HOSTILE), "signature": HOSTILE},
        {**make_validation(20, 1.0), "signature": HOSTILE, "samples": [hostile_sample]},
        {**ROLLBACK, "reason": HOSTILE},
        {**FINISHED, "reason": HOSTILE, "weights": HOSTILE},
    ]
    page = Page(report_html(events, HOSTILE, {HOSTILE: HOSTILE}))
    assert len(page.attributes_of("script")) == 1  # the report's own script
    assert page.text.count("alert('x')") >= 9
    assert not any(name == "img" for name, _ in page.tags)


def test_the_report_loads_no_external_files():
    text = report_html([*RUN, {"event": "notice", "text": HOSTILE}], "", {})
    page = Page(text)
    for _, attributes in page.tags:
        assert not {"src", "href", "xlink:href", "data", "srcset", "action"} & set(attributes)
    assert "url(" not in text
    assert "@import" not in text
    assert {
        "content": "width=device-width, initial-scale=1",
        "name": "viewport",
    } in page.attributes_of("meta")


def test_the_headline_shows_state_progress_and_best_score():
    training, finished = make_report(RUN).text, make_report([*RUN, FINISHED]).text
    assert "Training report training step 200 of 100,000" in training
    assert "Training report finished" in finished
    assert "the mean of steps 200 and 300" in finished
    assert "dev BLEU 22.22 best, step 200" in training


def test_the_report_shows_the_best_validation_recorded_in_the_log():
    worse = {**make_validation(200, 22.22), "is_best": False}
    text = make_report([make_validation(100, 11.11), worse]).text
    assert "dev BLEU 11.11 best, step 100" in text


def test_the_report_of_a_finished_run_shows_the_score_of_the_final_weights():
    delivered = {**FINISHED, "bleu": 33.33}
    text = make_report([*RUN, delivered]).text
    assert "dev BLEU 33.33 the mean of steps 200 and 300" in text
    assert "22.22" not in text.partition("Curves")[0]
    earlier = {key: value for key, value in delivered.items() if key != "weights"}
    assert "dev BLEU 33.33 step 200" in make_report([*RUN, earlier]).text


CONTROL = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0xD800]))


def test_the_report_has_no_control_characters():
    hostile = f"before{CONTROL}\x1b[2Jafter"
    events = [
        {**NOTICE, "text": hostile},
        {**make_validation(100, 11.11, hostile), "signature": hostile},
        {**ROLLBACK, "reason": hostile},
        {**FINISHED, "reason": hostile, "weights": hostile},
    ]
    events[1]["samples"][0] |= {"source": hostile, "reference": hostile}
    page = report_html(events, f"train:\n  start_from: {hostile}\n", {hostile: hostile})
    assert not set(CONTROL) & set(page)
    assert page.count("after") >= 9
    page.encode()


def test_the_learning_rate_chart_mentions_muon_only_if_muon_is_used():
    rates = {
        name: make_report(RUN, f"train:\n  optimizer: {name}\n").text for name in ("muon", "adamw")
    }
    assert "Learning rate of Muon (layer matrices) by step; maximum: 0.02." in rates["muon"]
    assert "Learning rate by step; maximum: 0.02." in rates["adamw"]


def test_the_table_lists_every_validation():
    scores = [10 + i / 7 for i in range(150)]
    text = make_report([make_validation(100 * i, score) for i, score in enumerate(scores)]).text
    for score in scores:
        assert f" {score:.2f} {score + 20:.2f} " in text


def test_every_chart_has_text_for_screen_readers():
    page = make_report(RUN)
    identifiers = {a.get("id") for tag in ("title", "desc") for a in page.attributes_of(tag)}
    charts = page.attributes_of("svg")
    assert len(charts) == 5
    for chart in charts:
        assert chart["viewbox"]
        assert set(str(chart["aria-labelledby"]).split()) <= identifiers
    assert "BLEU: 11.11 at the start, 22.22 at the end" in page.text


def test_the_report_of_a_long_run_is_small():
    events = [NOTICE, *(make_step(number) for number in range(10, 200_000, 10))]
    events += [make_validation(number, number / 9000, f"{number} Hund") for number in range(1, 600)]
    text = report_html(events, "", {})
    curves = [str(line["points"]).split() for line in Page(text).attributes_of("polyline")]
    assert max(map(len, curves)) == MAX_POINTS
    assert len(text.encode()) < 400_000


def test_identical_consecutive_translations_are_shown_once():
    events = [
        make_validation(100, 1, "eins"),
        make_validation(200, 2, "zwei"),
        make_validation(300, 3, "zwei"),
    ]
    text = make_report(events).text
    assert "source a man reference ein Mann step 100 eins steps 200 to 300 zwei" in text


def test_the_report_shows_the_translation_from_every_validation():
    events = [make_validation(100 * i, 1.0, f"Wort{i}x") for i in range(1, 60)]
    text = make_report(events).text
    assert [f"Wort{i}x" in text for i in range(1, 60)] == [True] * 59


def test_words_that_match_the_reference_are_highlighted():
    assert match_segments("Ein <Hund> schläft", "Ein Mann schläft") == [
        ("Ein", True),
        ("<Hund>", False),
        ("schläft", True),
    ]
    assert match_segments("", "Ein Mann") == []
    events = [make_validation(100, 1.0, "ein <Hund>")]
    assert "<b>ein</b> &lt;Hund&gt;</dd>" in report_html(events, "", {})


def test_a_rollback_is_listed_and_marked_and_its_undone_steps_are_dropped():
    events = [*RUN, ROLLBACK, make_step(110)]
    page = make_report(events)
    expected = (
        "step 150: the loss is NaN or infinite; "
        "rolled back to step 100 with learning-rate factor 0.5"
    )
    assert expected in page.text
    markers = [line for line in page.attributes_of("line") if line.get("class") == "marker"]
    assert len(markers) == len(page.attributes_of("svg")) == 5
    grid = [line for line in page.attributes_of("line") if line.get("class") == "grid"]
    right_end = max(float(str(line["x2"])) for line in grid)
    assert all(float(str(marker["x1"])) <= right_end for marker in markers)
    assert "22.22" not in page.text
    kept = [event["step"] for event in drop_undone_entries(events) if event["event"] == "step"]
    assert kept == [*range(10, 110, 10), 110]


def test_the_report_shows_the_plan_and_the_environment():
    text = make_report([NOTICE, make_step(10)], "model:\n  arch: rnn\n", Python="3.11").text
    assert "Plan data: 29,000 training pairs" in text
    assert "arch: rnn" in text
    assert "Environment Python 3.11" in text

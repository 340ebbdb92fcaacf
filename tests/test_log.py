import json
from dataclasses import replace

from event_samples import FINISHED, ROLLED_BACK, SAMPLE, VALIDATED, make_step
from mtcli.reporting.events import Notice, Sample, Score
from mtcli.reporting.log import EventLog, as_logged, read_events


def test_the_log_has_one_object_per_event_but_only_every_tenth_step(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    steps = (make_step(number) for number in range(1, 31))
    for event in [Notice("ü"), *steps, VALIDATED, ROLLED_BACK]:
        log(event)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert [event["event"] for event in events] == [
        "notice",
        *["step"] * 3,
        "validation",
        "rollback",
    ]
    assert events[0]["text"] == "ü"
    assert [event["step"] for event in events[1:4]] == [10, 20, 30]
    assert events[1]["n_positions"] == 25
    assert "memory" not in events[1]  # depends on the machine, not on the run
    assert events[4]["samples"][0]["source"] == SAMPLE.source
    assert events[5]["to_step"] == 100
    assert read_events(log.path) == events


def test_the_log_returns_the_history_of_a_run(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    assert log.read_history() == ()
    for event in [Notice("x"), make_step(9), make_step(10), VALIDATED, ROLLED_BACK, FINISHED]:
        log(event)
    history = (replace(make_step(10), memory=0), VALIDATED, ROLLED_BACK)
    assert log.read_history() == history
    with log.path.open("a") as file:  # entries from other versions and an incomplete line
        file.write('{"event": "step", "step": 20}\n{"event": "validation", "steps": 1}\n{"ev')
    assert log.read_history() == history


# A validation as it was logged before scores became a mapping.
OLD_VALIDATION = {
    "event": "validation",
    "time": 1794973205.793,
    "step": 300,
    "loss": 0.5044655045264053,
    "bleu": 78.67730446477488,
    "chrf": 89.35082390739086,
    "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "is_best": True,
    "seconds": 2.274825641999996,
    "samples": [{"source": "Who?", "reference": "Wer?", "translation": "Wer"}],
}


def test_a_validation_is_logged_with_one_field_per_metric(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    log.path.write_text(json.dumps(OLD_VALIDATION), encoding="utf-8")
    [event] = log.read_history()
    assert event.scores["bleu"].value == OLD_VALIDATION["bleu"]
    assert event.scores["bleu"].signature == OLD_VALIDATION["signature"]
    assert event.scores["chrf"].value == OLD_VALIDATION["chrf"]
    assert event.samples == (Sample("Who?", "Wer?", "Wer"),)
    entry = json.loads(json.dumps(as_logged(event)))
    assert list(entry) == list(OLD_VALIDATION)  # the same fields in the same order
    assert {**entry, "time": OLD_VALIDATION["time"]} == OLD_VALIDATION


def test_the_log_keeps_a_new_metric(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    scores = {**VALIDATED.scores, "comet": Score("comet", 0.8, "")}
    event = replace(VALIDATED, scores=scores)
    log(event)
    assert read_events(log.path)[0]["comet"] == 0.8
    assert log.read_history() == (event,)


def test_a_truncated_log_is_not_complete(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    assert log.read_finished() is None
    log(VALIDATED)
    size = log.size()
    assert log.read_finished() is None
    log(FINISHED)
    assert log.read_finished() == FINISHED
    log.truncate(log.size() - 3)  # cut off as if the process had been killed
    assert log.read_finished() is None
    assert [event["event"] for event in read_events(log.path)] == ["validation"]
    log.truncate(size)
    assert len(log.path.read_bytes()) == size


def test_a_finished_log_of_an_earlier_version_is_complete(tmp_path):
    line = {"event": "finished", "time": 0, "step": 9, "best_step": 6, "bleu": 1.0}
    (tmp_path / "log.jsonl").write_text(json.dumps({**line, "signature": "s", "reason": "r"}))
    finished = EventLog(tmp_path / "log.jsonl").read_finished()
    assert finished
    assert finished.weights == "step 6"


def test_a_missing_log_has_no_events(tmp_path):
    assert read_events(tmp_path / "log.jsonl") == []

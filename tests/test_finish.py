"""End of a run: choice of the final weights, and the scores reported for them."""

import json
import re
from html import unescape

import pytest
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.config.load import load_config
from mtcli.config.sections import Config
from mtcli.reporting.events import Activity, Finished, Notice, Score, StepDone
from mtcli.training.dataset import DevScores
from mtcli.training.run import train_run
from mtcli.training.run_state import Run

SETTINGS = [("train.ema", 0.5), ("train.average", 2)]


@pytest.fixture
def config(corpus_files, tiny_options) -> Config:
    tiny = [tuple(option.split("=")) for option in tiny_options[1::2]]
    return load_config(None, [("data.train", list(corpus_files)), *tiny, *SETTINGS])


def set_scores(monkeypatch, *scores: float) -> None:
    """Set the BLEU scores of the validations at steps 4, 8 and 12, and then of the candidates."""
    remaining = iter(scores)
    monkeypatch.setattr(
        Run,
        "measure",
        lambda *_: DevScores(1.0, {"bleu": Score("BLEU", next(remaining), "nrefs:1")}, 0.0, ()),
    )


def verdicts(events: list[object]) -> list[str]:
    texts = [event.text for event in events if isinstance(event, Notice)]
    return [text.partition("; ")[2] for text in texts if "better than" in text]


@pytest.mark.parametrize(
    ("scores", "expected", "weights"),
    [
        (
            (10, 30, 20, 40, 35),
            ["better than step 8", "not better than the mean of steps 8 and 12"],
            "the mean of steps 8 and 12",
        ),
        (
            (10, 30, 20, 25, 35),
            ["not better than step 8", "better than step 8"],
            "the last step without the moving average",
        ),
        ((10, 30, 20, 25, 15), ["not better than step 8"] * 2, "step 8"),
    ],
)
def test_the_best_candidate_provides_the_final_weights(
    config, tmp_path, monkeypatch, scores, expected, weights
):
    set_scores(monkeypatch, *scores)
    events = []
    train_run(config, tmp_path / "run", events.append)
    assert verdicts(events) == expected
    assert isinstance(events[-1], Finished)
    assert (events[-1].weights, events[-1].bleu) == (weights, max(scores))


@pytest.mark.parametrize("last", [(43.21, 20), (20, 43.21), (20, 10)], ids=["mean", "last", "best"])
def test_log_report_model_card_and_info_show_the_same_score(config, tmp_path, monkeypatch, last):
    set_scores(monkeypatch, 10, 32.1, 20, *last)
    directory = tmp_path / "run"
    train_run(config, directory, lambda _: None)
    finished = json.loads((directory / "log.jsonl").read_text().splitlines()[-1])
    assert finished["event"] == "finished"
    assert finished["bleu"] == max(32.1, *last)
    score = f"{finished['bleu']:.2f}"
    page = (directory / "report.html").read_text()
    [(headline, weights)] = re.findall(r"<dt>dev BLEU</dt><dd>([\d.]+)<small>(.*?)</small>", page)
    assert (headline, unescape(weights)) == (score, finished["weights"])
    assert re.findall(r"dev BLEU: ([\d.]+) with greedy", (directory / "README.md").read_text()) == [
        score
    ]
    info = CliRunner().invoke(app, ["info", str(directory)]).stdout
    assert re.findall(r"dev BLEU +([\d.]+) with greedy", info) == [score]
    assert finished["weights"] in info


def test_activities_after_the_last_step_are_displayed_but_not_logged(config, tmp_path, monkeypatch):
    set_scores(monkeypatch, 10, 30, 20, 25, 15)
    events = []
    train_run(config, tmp_path / "run", events.append)
    last = max(i for i, event in enumerate(events) if isinstance(event, StepDone))
    activities = [event.text for event in events[last:] if isinstance(event, Activity)]
    assert activities == [
        "validating",
        "evaluating the mean of steps 8 and 12",
        "evaluating the last step without the moving average",
        "choosing alignment heads",
        "exporting to CTranslate2",
    ]
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert not any(f'"{text}"' in log for text in activities)

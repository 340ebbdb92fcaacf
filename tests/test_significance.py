"""Scores, confidence intervals and p-values equal those of the sacrebleu command."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import _bootstrap_resample

from mtcli.config.metrics import METRIC_NAMES, MetricOptions, TestOptions
from mtcli.data.formats.base import Languages
from mtcli.evaluation.evaluate import System, score_systems
from mtcli.evaluation.results import Evaluation, TestSet
from mtcli.evaluation.significance import StatisticsTable, confidence_interval
from mtcli.evaluation.tokenizers import is_installed
from processes import output_of
from system_outputs import REFERENCES, TOKENIZERS, system_output

WIDTH = 4  # decimal places to compare; the command prints one by default
METHODS = {"bootstrap": "--paired-bs", "randomization": "--paired-ar"}
# Metrics that one run of the command can compute: either chrF or chrF++, but not both.
RUNS = {
    ("bleu", "chrf", "ter"): ["-m", "bleu", "chrf", "ter"],
    ("chrf++",): ["-m", "chrf", "--chrf-word-order", "2"],
}
CELL = re.compile(r"([\d.]+)(?: \(([\d.]+) ± ([\d.]+)\))?(?: \(p = ([\d.]+)\))?")


def check_tokenizer(language: str) -> None:
    if not is_installed(TOKENIZERS[language]):
        pytest.skip(f"{TOKENIZERS[language]} is not installed")


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def sacrebleu(references: list[Path], outputs: list[Path], *options: str) -> str:
    """Return the output of the sacrebleu command."""
    command = [sys.executable, "-m", "sacrebleu", *references, "-i", *outputs, *options]
    return output_of([*command, "-w", str(WIDTH), "--no-color", "--quiet"])


def rounded(value: float) -> str:
    return f"{value:.{WIDTH}f}"


class Case:
    """References and system outputs in files, and their evaluation by mtcli."""

    def __init__(self, directory: Path, language: str, rates: list[float], n_references: int = 1):
        check_tokenizer(language)
        self.language = language
        lines = [REFERENCES[language], system_output(language, 0.1, seed=99)][:n_references]
        self.outputs = {
            write(directory / f"{language}{i}.txt", output): tuple(output)
            for i, rate in enumerate(rates)
            if (output := system_output(language, rate, seed=i))
        }
        self.references = [write(directory / f"ref{i}", part) for i, part in enumerate(lines)]
        languages = Languages(None, language)
        self.test_set = TestSet("", None, tuple(map(tuple, lines)), languages=languages)

    def evaluate(self, method: str = "bootstrap", trials: int | None = None) -> Evaluation:
        systems = [System(str(path), lines) for path, lines in self.outputs.items()]
        options = MetricOptions(metrics=METRIC_NAMES)
        return score_systems(systems, self.test_set, options, TestOptions(method, trials))

    def sacrebleu(self, outputs: list[Path], *options: str) -> str:
        tokenizer = ["--tokenize", TOKENIZERS[self.language]]
        return sacrebleu(self.references, outputs, *options, *tokenizer)


def check_scores(case: Case) -> None:
    """Compare scores, intervals and signatures with one run of the command per system."""
    evaluation = case.evaluate()
    for system in evaluation.systems:
        for names, options in RUNS.items():
            text = case.sacrebleu([Path(system.name)], "--confidence", *options)
            found = json.loads(text)
            for name, theirs in zip(names, found if len(names) > 1 else [found], strict=True):
                ours = system.scores[name]
                assert ours.metric == theirs["name"]
                assert ours.signature == theirs["signature"]
                values = {"score": ours.value, "confidence_mean": ours.mean}
                for key, value in {**values, "confidence_var": ours.margin}.items():
                    assert round(value, WIDTH) == theirs[key], (system.name, name, key)


def check_p_values(case: Case, method: str, trials: int | None = None) -> None:
    """Compare scores and p-values with the table of the command."""
    evaluation = case.evaluate(method, trials)
    test = [METHODS[method], *([f"{METHODS[method]}-n", str(trials)] if trials else [])]
    for names, options in RUNS.items():
        text = case.sacrebleu([*case.outputs], *test, "--format", "latex", *options)
        rows = [line.rstrip(" \\").split("&")[1:] for line in text.splitlines() if "&" in line]
        for system, cells in zip(evaluation.systems, rows[1:], strict=True):
            for name, cell in zip(names, cells, strict=True):
                value, _, margin, p_value = CELL.search(cell).groups()
                assert value == rounded(system.scores[name].value)
                if method == "bootstrap":
                    assert margin == rounded(system.scores[name].margin)
                found = evaluation.comparison.find(system.name, name)
                assert (p_value is None) == (found is None)
                assert found is None or p_value == f"{found.p_value:.4f}", (system.name, name)
        for name in names:
            signature = evaluation.comparison.signatures[name]
            if method == "randomization":  # the command computes no intervals
                signature = signature.replace("bs:1000|", "")
            assert signature in text


@pytest.mark.parametrize("language", ["de", "zh", "ja"])
def test_p_values_equal_those_of_the_sacrebleu_command(tmp_path, language):
    check_p_values(Case(tmp_path, language, [0.3, 0.4]), "bootstrap")


def test_p_values_of_randomization_equal_those_of_the_sacrebleu_command(tmp_path):
    check_p_values(Case(tmp_path, "ru", [0.3, 0.4], n_references=2), "randomization", 500)


def test_scores_and_intervals_equal_those_of_the_sacrebleu_command(tmp_path):
    check_scores(Case(tmp_path, "de", [0.2], n_references=2))


@pytest.mark.long
@pytest.mark.parametrize("n_references", [1, 2])
@pytest.mark.parametrize("language", REFERENCES)
def test_twenty_outputs_have_the_scores_and_p_values_of_sacrebleu(tmp_path, language, n_references):
    case = Case(tmp_path, language, [0.05, 0.1, 0.3, 0.32, 0.8], n_references)
    check_scores(case)
    for method in METHODS:
        check_p_values(case, method)


@pytest.mark.parametrize("metric", [BLEU(), CHRF(word_order=2), TER()], ids=lambda m: m.__class__)
def test_bootstrap_scores_equal_those_of_sacrebleu_for_sums_that_float32_rounds(metric):
    random = np.random.default_rng(1)
    n_columns = {BLEU: 10, CHRF: 24, TER: 2}[type(metric)]
    rows = random.integers(1, 2**22, size=(50, n_columns)).tolist()
    ours = StatisticsTable({"metric": metric}, [{"metric": rows}] * 2).bootstrap(20, seed=12345)
    theirs = [score.score for score in _bootstrap_resample(rows, metric, 20)[1]]
    for system in ours:
        assert system["metric"].tolist() == [float(score) for score in theirs]


@pytest.mark.parametrize("n_trials", [1, 31, 32, 33, 100])
def test_shuffles_equal_those_of_sacrebleu_for_any_number_of_trials(n_trials):
    from mtcli.evaluation.significance import _draw_masks

    expected = np.random.default_rng(7).integers(2, size=(n_trials, 13), dtype=bool)
    assert np.array_equal(np.concatenate(list(_draw_masks(n_trials, 13, seed=7))), expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_system_does_not_differ_significantly_from_itself(method):
    """For identical systems, sacreBLEU's p-value is small."""
    lines = tuple(system_output("de", 0.3, seed=1))
    test_set = TestSet("", None, (tuple(REFERENCES["de"]),))
    systems = [System("a", lines), System("b", lines)]
    comparison = score_systems(systems, test_set, test=TestOptions(method, 50)).comparison
    for found in comparison.differences:
        assert found.difference == 0
        assert found.p_value == pytest.approx(1 / 51)
        assert not found.is_significant


def test_an_interval_contains_95_percent_of_the_scores():
    interval = confidence_interval(np.arange(1000.0))
    assert interval.mean == 499.5
    assert interval.margin == (974 - 25) / 2


def test_the_seed_changes_p_values_but_not_scores(tmp_path):
    case = Case(tmp_path, "ru", [0.3, 0.4])
    systems = [System(str(path), lines) for path, lines in case.outputs.items()]
    results = [
        score_systems(systems, case.test_set, MetricOptions(seed=seed), TestOptions(seed=seed))
        for seed in (1, 2)
    ]
    first, second = (result.systems[1].scores["bleu"] for result in results)
    assert first.value == second.value
    assert first.margin != second.margin
    assert "|seed:1|" in first.signature
    assert "|seed:2|" in results[1].comparison.signatures["chrf"]

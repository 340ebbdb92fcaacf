"""Measure an HTML report in Chromium: file size, time to open and axe-core findings.

    npm install axe-core                  # optional; in any directory
    python benchmarks/report.py --axe node_modules/axe-core/axe.min.js [REPORT.html]

Without REPORT.html, the script creates a report that compares two systems on 3,000 lines of the
demo corpus, with attention maps for 200 lines, as if both were models with 6 layers and 8 heads.
The browser measures the time to open, from the
start of navigation to the first frame after the sentence browser has drawn its first page.
"""

import argparse
import random
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from mtcli.config.alignment import AlignmentHeads
from mtcli.config.metrics import MetricOptions
from mtcli.data.formats.base import Languages
from mtcli.evaluation.evaluate import System, score_systems
from mtcli.evaluation.report import ReportContent, evaluation_page
from mtcli.evaluation.report_maps import trace_maps
from mtcli.evaluation.results import TestSet
from mtcli.reporting.attention.maps import AttentionStack, SentenceAttention
from mtcli.translation.attention import LineAttention

DEMO = Path(__file__).parent.parent / "data" / "demo"
N_LINES, N_MAPS, N_RUNS = 3_000, 200, 9
N_LAYERS, N_HEADS = 6, 8  # of the simulated models
OPENED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now()))))"""
FINDINGS = """() => axe.run().then(result => result.violations.map(
  violation => [violation.impact, violation.id, violation.nodes.length]))"""


def make_report(n_joined: int) -> str:
    """Return a report on two simulated systems, whose outputs are references with random errors."""
    random.seed(1)
    source, reference = (_read_lines(DEMO / f"train.{side}", n_joined) for side in ("en", "de"))
    words = " ".join(reference).split()
    systems = [
        System(f"runs/system-{rate}", tuple(_damage(line, rate, words) for line in reference))
        for rate in (0.1, 0.2)
    ]
    test_set = TestSet("demo", tuple(source), (tuple(reference),), None, Languages("en", "de"))
    metrics = MetricOptions(resamples=100)
    evaluation = score_systems(systems, test_set, metrics)
    translators: dict[int, Any] = {0: SimulatedTranslator(1), 1: SimulatedTranslator(2)}
    traced = trace_maps(evaluation, translators, range(N_MAPS))
    content = ReportContent(maps=traced.maps, map_rule=traced.describe_detail())
    return evaluation_page(evaluation, metrics, content)


def _read_lines(path: Path, n_joined: int) -> list[str]:
    """Return lines of the file; each one consists of `n_joined` sentences."""
    sentences = path.read_text(encoding="utf-8").splitlines()
    starts = range(0, N_LINES * n_joined, n_joined)
    return [" ".join(sentences[start : start + n_joined]) for start in starts]


class SimulatedTranslator:
    """Returns random attention weights, of which most are small."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def attention(self, text: str, reference: str) -> LineAttention:
        """Return attention of all kinds between pieces of about five characters."""
        source, target = (
            [f"▁{line[i : i + 5].strip()}" for i in range(0, len(line), 5)] + ["</s>"]
            for line in (text, reference)
        )
        stacks = {
            "cross": self._stack(target, source),
            "decoder": self._stack(target, target),
            "encoder": self._stack(source, source),
        }
        part = SentenceAttention(text, reference, stacks, AlignmentHeads(5, (0, 1)))
        return LineAttention(text, reference, (part,))

    def _stack(self, rows: list[str], columns: list[str]) -> AttentionStack:
        size = N_LAYERS, N_HEADS, len(rows)
        weights = self._generator.dirichlet([0.2] * len(columns), size)
        return AttentionStack(rows, columns, weights)


def _damage(line: str, rate: float, words: list[str]) -> str:
    return " ".join(random.choice(words) if random.random() < rate else w for w in line.split())


def measure_opening(browser: Browser, path: Path) -> list[float]:
    """Return the time in seconds to open the report, for each run in a new browser context."""
    seconds = []
    for _ in range(N_RUNS):
        context = browser.new_context()
        page = context.new_page()
        page.goto(path.as_uri(), timeout=60_000)
        seconds.append(page.evaluate(OPENED) / 1000)
        context.close()
    return seconds


def find_problems(browser: Browser, path: Path, axe: str, width: int) -> list[str]:
    """Return the axe-core findings for the light and dark color schemes."""
    found = []
    for scheme in ("light", "dark"):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        page = context.new_page()
        page.goto(path.as_uri(), timeout=60_000)
        if page.locator("#filter option[value=map]").count():
            page.select_option("#filter", "map")
        for summary in page.locator("details > summary").all()[:8]:
            summary.click()
        page.evaluate(axe)
        for impact, name, n in page.evaluate(FINDINGS):
            found.append(f"{scheme}, {width} pixels: {impact}: {name}, {n} elements")
        context.close()
    return found


def main() -> None:
    """Print the file size, the time to open and the axe-core findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", type=Path)
    parser.add_argument("--axe", type=Path, help="path to axe.min.js from axe-core")
    parser.add_argument("--join", type=int, default=1, help="sentences per line")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        path = arguments.report or Path(directory) / "report.html"
        if not arguments.report:
            path.write_text(make_report(arguments.join), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        seconds = measure_opening(browser, path.resolve())
        print(f"size: {path.stat().st_size / 1e6:.2f} MB")
        print(f"time to open: median {statistics.median(seconds):.2f} s of {N_RUNS} runs, ", end="")
        print(f"{min(seconds):.2f} to {max(seconds):.2f} s")
        if arguments.axe:
            axe = arguments.axe.read_text(encoding="utf-8")
            found = [f for w in (1280, 390) for f in find_problems(browser, path.resolve(), axe, w)]
            print("axe-core:", "\n".join(found) or "no findings")
        browser.close()


if __name__ == "__main__":
    main()

"""Measure an HTML report in Chromium: file size, time to open and axe-core findings.

    npm install axe-core                  # optional; in any directory
    python benchmarks/report.py --axe node_modules/axe-core/axe.min.js [REPORT.html]

Without REPORT.html, the script creates a report that compares two systems on 3,000 lines of the
demo corpus, with attention maps for 200 lines. The browser measures the time to open, from the
start of navigation to the first frame after the sentence browser has drawn its first page.
"""

import argparse
import random
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from mtcli.config.metrics import MetricOptions
from mtcli.data.formats.base import Languages
from mtcli.evaluation.evaluate import System, score_systems
from mtcli.evaluation.report import ReportContent, evaluation_page
from mtcli.evaluation.results import TestSet

DEMO = Path(__file__).parent.parent / "data" / "demo"
N_LINES, N_MAPS, N_RUNS = 3_000, 200, 9
PIECES = 24  # rows and columns of each attention map
OPENED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
  () => done(performance.now()))))"""
FINDINGS = """() => axe.run().then(result => result.violations.map(
  violation => [violation.impact, violation.id, violation.nodes.length]))"""


def make_report() -> str:
    """Return a report on two simulated systems, whose outputs are references with random errors."""
    random.seed(1)
    source, reference = (
        (DEMO / f"train.{side}").read_text(encoding="utf-8").splitlines()[:N_LINES]
        for side in ("en", "de")
    )
    words = " ".join(reference).split()
    systems = [
        System(f"runs/system-{rate}", tuple(_damage(line, rate, words) for line in reference))
        for rate in (0.1, 0.2)
    ]
    test_set = TestSet("demo", tuple(source), (tuple(reference),), None, Languages("en", "de"))
    metrics = MetricOptions(resamples=100)
    evaluation = score_systems(systems, test_set, metrics)
    attention = {
        "title": "cross-attention, layer 2, mean of all heads",
        "rows": words[:PIECES],
        "columns": words[PIECES : 2 * PIECES],
        "weights": ["AbZ_" * (PIECES // 4)] * PIECES,
    }
    maps = {line: {0: attention, 1: attention} for line in range(N_MAPS)}
    return evaluation_page(evaluation, metrics, ReportContent(maps=maps))


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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        path = arguments.report or Path(directory) / "report.html"
        if not arguments.report:
            path.write_text(make_report(), encoding="utf-8")
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

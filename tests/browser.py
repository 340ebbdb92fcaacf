"""Fixtures for tests in a real browser: headless Chromium, controlled by Playwright.

The fixture `open_page` is a function that takes HTML and returns a Playwright page. The test fails
if the page sends a network request, has a script error or violates its content security policy.
"""

import shutil
from collections.abc import Callable, Iterator

import pytest

TIMEOUT = 60_000  # milliseconds for each wait
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Return a browser; skip the test if Chromium or Playwright is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if executable is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=executable,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=TIMEOUT,
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path) -> Iterator[Callable]:
    """Return a function that opens HTML text in a new page."""
    contexts, problems = [], []

    def open_html(html: str, *, is_dark: bool = False, width: int = 1280, script: bool = True):
        context = browser.new_context(
            color_scheme="dark" if is_dark else "light",
            viewport={"width": width, "height": 900},
            java_script_enabled=script,
        )
        contexts.append(context)
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: _note(problems, message))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        path = tmp_path / f"page-{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        page.on("request", lambda request: _check_request(problems, request.url, path.as_uri()))
        page.goto(path.as_uri())
        return page

    yield open_html
    for context in contexts:
        context.close()
    assert problems == []


def _note(problems: list[str], message) -> None:
    if message.type in ("error", "warning"):
        problems.append(message.text)


def _check_request(problems: list[str], url: str, expected: str) -> None:
    if url.partition("#")[0] != expected:
        problems.append(f"request: {url}")


def overflowing_elements(page) -> list[str]:
    """Return the elements that are wider than the page and are not in a scrollable element."""
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter(element => {
          const box = element.getBoundingClientRect();
          if (!box.width || element.closest(".scroll, .visually-hidden")) return false;
          return box.right > document.documentElement.clientWidth + 1 || box.left < -1;
        }).map(element => element.outerHTML.slice(0, 200))"""
    )

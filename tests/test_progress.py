"""Progress of translate and evaluate; the progress bar appears only on a terminal."""

import contextlib
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtcli import Translator
from mtcli.config.search import EngineOptions
from mtcli.translation.formats import Formats
from mtcli.translation.stream import Progress, total_size, translate_stream
from mtcli.translation.stream_io import Input

MTCLI = [sys.executable, "-m", "mtcli"]
SECONDS = 90
BAR = "lines/s"
groups = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=9)


@given(groups, st.integers(1, 7), st.data())
def test_the_completed_fraction_increases_to_one(sizes, n_batches, data):
    progress = Progress(sum(size for _, size in sizes))
    shares = []
    progress.on_change = lambda: shares.append(progress.share)
    waiting = list(sizes)
    for n_lines, size in sizes:
        while waiting and (data.draw(st.booleans()) or waiting[0] == (n_lines, size)):
            progress.read(*waiting.pop(0))
        for _ in range(n_batches):
            progress.advance(n_lines / n_batches)
    assert progress.n_lines == sum(n_lines for n_lines, _ in sizes)
    assert progress.share == 1
    assert all(0 <= a <= b + 1e-9 for a, b in zip(shares, [*shares[1:], 1.0], strict=True))


def test_the_completed_fraction_includes_partial_groups():
    progress = Progress(1000)
    progress.read(10, 400)
    progress.read(10, 600)
    assert progress.share == 0
    progress.advance(5)
    assert (progress.n_lines, progress.share) == (5, 0.2)
    progress.advance(10)
    assert (progress.n_lines, progress.share) == (15, 0.7)


def test_the_completed_fraction_of_a_stream_is_unknown(tmp_path):
    progress = Progress()
    progress.read(3, 9)
    progress.advance(2)
    assert (progress.n_lines, progress.share) == (2, None)
    (tmp_path / "x").write_bytes(b"12345")
    read_end, write_end = os.pipe()
    with (tmp_path / "x").open("rb") as file, os.fdopen(read_end) as pipe:
        os.close(write_end)
        assert total_size([file, file]) == 10
        file.read(2)
        assert total_size([file]) == 3
        assert total_size([file, pipe]) is None
        assert total_size([io.BytesIO(b"1")]) is None


def test_every_line_is_counted_once(tiny_trained):
    """Blank, repeated and split lines count as one line each."""
    long = " ".join(["the man sees a book"] * 40)
    raw = "".join(f"{line}\n" for line in ["", "water", "water", long, "", "bread"] * 9).encode()
    translator = Translator(tiny_trained, engine=EngineOptions(threads=1), batch_tokens=64)
    progress, counts = Progress(len(raw)), []
    progress.on_change = lambda: counts.append(progress.n_lines)
    source = Input(io.BytesIO(raw), "x")
    groups = translate_stream(translator, [source], translator.options, Formats(), progress)
    assert sum(len(group.lines) for group in groups) == progress.n_lines == 54
    assert progress.share == 1
    assert len(set(counts)) > 1  # progress advances with each batch
    for lines in (["water", "", "bread"], ["", ""]):
        counts.clear()
        list(translator.stream(lines, on_progress=counts.append))
        assert round(sum(counts), 6) == len(lines)


class Terminal:
    """Pseudo-terminal with 100 columns that records its output."""

    def __enter__(self):
        self.controller, self.tty = pty.openpty()
        self.output = ""
        return self

    def __exit__(self, *_):
        os.close(self.controller)
        os.close(self.tty)

    def read(self, seconds: float) -> None:
        """Wait up to `seconds` for output and record it."""
        if select.select([self.controller], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.output += os.read(self.controller, 1 << 16).decode(errors="replace")

    def run(self, command, interrupt_when=lambda: False, **streams) -> int:
        """Run `command`, send SIGINT once `interrupt_when` is true, and return the exit code."""
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""}
        process = subprocess.Popen([*map(str, command)], env=environment, **streams)
        end = time.monotonic() + SECONDS
        try:
            while process.poll() is None:
                assert time.monotonic() < end, f"still running: {self.output!r}"
                self.read(0.1)
                if interrupt_when():
                    process.send_signal(signal.SIGINT)
                    interrupt_when = bool
            self.read(0.1)
        finally:
            process.kill()
            process.wait(timeout=SECONDS)
        return process.returncode

    @property
    def is_cursor_visible(self) -> bool:
        """Whether the cursor was shown after it was last hidden."""
        return self.output.rfind("\x1b[?25h") > self.output.rfind("\x1b[?25l")

    @property
    def last_line(self) -> str:
        """Visible text of the last line."""
        last = re.split(r"\x1b\[2K", self.output)[-1]
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", last).strip()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").write_text("water\nthe man sees a book\n" * 30)
    return tmp_path / "in", tmp_path / "out"


@pytest.mark.parametrize("mode", ["--output", "redirected"])
def test_a_terminal_shows_the_bar_and_clears_it(tiny_trained, files, mode):
    source, output = files
    command = [*MTCLI, "translate", tiny_trained, source]
    with Terminal() as terminal, output.open("wb") as file:
        if mode == "--output":
            code = terminal.run([*command, "--output", output], stderr=terminal.tty)
        else:
            code = terminal.run(command, stdout=file, stderr=terminal.tty)
    assert code == 0
    assert output.read_bytes().count(b"\n") == 60
    for part in (BAR, "100%", "60 lines", "left"):
        assert part in terminal.output
    assert not terminal.last_line or terminal.last_line.startswith("note:")
    assert terminal.is_cursor_visible


def test_the_bar_for_a_stream_shows_lines_but_no_percentage(tiny_trained, files):
    with Terminal() as terminal:
        command = f"cat {files[0]} | {' '.join(MTCLI)} translate {tiny_trained} --output {files[1]}"
        assert terminal.run(["bash", "-c", command], stderr=terminal.tty) == 0
    assert "60 lines" in terminal.output
    assert "%" not in terminal.output


@pytest.mark.parametrize(
    "mode", ["--quiet", "output to the terminal", "output to a pipe", "typed input"]
)
def test_no_bar_appears_if_it_would_interfere_with_input_or_output(tiny_trained, files, mode):
    command = [*MTCLI, "translate", tiny_trained, files[0]]
    with Terminal() as terminal:
        streams = {"stderr": terminal.tty}
        match mode:
            case "--quiet":
                command += ["--quiet", "--output", files[1]]
            case "output to the terminal":
                streams["stdout"] = terminal.tty
            case "output to a pipe":
                command = ["bash", "-c", f"{' '.join(map(str, command))} | cat > {files[1]}"]
            case "typed input":
                command = [*MTCLI, "translate", tiny_trained, "--output", files[1]]
                streams["stdin"] = terminal.tty
                os.write(terminal.controller, b"water\n\x04")
        assert terminal.run(command, **streams) == 0
    assert BAR not in terminal.output
    assert "\x1b[2K" not in terminal.output


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_no_bar_appears_in_a_pipe(tiny_trained, files, command):
    arguments = [files[0], "--output", files[1]] if command == "translate" else [files[0]] * 2
    result = subprocess.run(
        [*MTCLI, command, tiny_trained, *arguments],
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert "\x1b" not in result.stderr
    # The other line states the speed of `evaluate`.
    lines = [line for line in result.stderr.splitlines() if not line.endswith(" lines/s")]
    assert all(line.startswith("note:") for line in lines)


@pytest.mark.parametrize("is_quiet", [False, True])
def test_evaluate_shows_the_bar(tiny_trained, files, is_quiet):
    quiet = ["--quiet"] if is_quiet else []
    command = [*MTCLI, "evaluate", tiny_trained, files[0], files[0], *quiet]
    with Terminal() as terminal, files[1].open("wb") as file:
        assert terminal.run(command, stdout=file, stderr=terminal.tty) == 0
    assert files[1].read_text().startswith("BLEU ")
    assert (BAR in terminal.output) == ("100%" in terminal.output) == (not is_quiet)
    assert bool(terminal.last_line) == (not is_quiet)
    assert "%" not in terminal.last_line


@pytest.mark.parametrize("end", ["Ctrl-C", "input error"])
def test_the_bar_is_cleared_after_an_interrupt_or_error(tiny_trained, files, end):
    read_end, write_end = os.pipe()
    command = [*MTCLI, "translate", tiny_trained, "--output", files[1], "--strict"]
    with Terminal() as terminal:

        def is_written() -> bool:
            is_shown = "1 line " in terminal.output
            return is_shown and files[1].read_bytes().endswith(b"\n")

        if end == "Ctrl-C":
            os.write(write_end, b"water\n")  # the pipe stays open: the program waits for more lines
            code = terminal.run(command, is_written, stdin=read_end, stderr=terminal.tty)
        else:
            os.write(write_end, b"water\n\xff\n")
            os.close(write_end)
            code = terminal.run(command, stdin=read_end, stderr=terminal.tty)
    os.close(read_end)
    assert BAR in terminal.output
    assert files[1].read_bytes().count(b"\n") == 1
    assert terminal.is_cursor_visible
    if end == "Ctrl-C":
        os.close(write_end)
        assert code == 130
        assert terminal.last_line in ("", "^C")
    else:
        assert code == 1
        assert terminal.last_line.startswith("error: standard input, line 2: not valid UTF-8")

"""The progress bar of translate and evaluate: on a terminal only, and never between the lines."""

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
from mtcli.options import EngineOptions
from mtcli.stream import Formats, Input, Progress, total_size, translate_stream

MTCLI = [sys.executable, "-m", "mtcli"]
SECONDS = 90
BAR = "lines/s"
groups = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=9)


@given(groups, st.integers(1, 7), st.data())
def test_the_share_grows_to_one(sizes, n_batches, data):
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


def test_a_part_of_a_group_is_a_part_of_its_size():
    progress = Progress(1000)
    progress.read(10, 400)
    progress.read(10, 600)
    assert progress.share == 0
    progress.advance(5)
    assert (progress.n_lines, progress.share) == (5, 0.2)
    progress.advance(10)
    assert (progress.n_lines, progress.share) == (15, 0.7)


def test_a_stream_has_no_share(tmp_path):
    progress = Progress()
    progress.read(3, 9)
    progress.advance(2)
    assert (progress.n_lines, progress.share) == (2, None)
    (tmp_path / "x").write_bytes(b"12345")
    end, entry = os.pipe()
    with (tmp_path / "x").open("rb") as file, os.fdopen(end) as pipe:
        os.close(entry)
        assert total_size([file, file]) == 10
        file.read(2)
        assert total_size([file]) == 3
        assert total_size([file, pipe]) is None
        assert total_size([io.BytesIO(b"1")]) is None


def test_every_line_is_counted_once(tiny_trained):
    """Blank lines, repeated lines, lines in parts: each of them is one line."""
    long = " ".join(["the man sees a book"] * 40)
    raw = "".join(f"{line}\n" for line in ["", "water", "water", long, "", "bread"] * 9).encode()
    translator = Translator(tiny_trained, engine=EngineOptions(threads=1), batch_tokens=64)
    progress, seen = Progress(len(raw)), []
    progress.on_change = lambda: seen.append(progress.n_lines)
    source = Input(io.BytesIO(raw), "x")
    written = translate_stream(translator, [source], translator.options, Formats(), progress)
    assert sum(len(group.lines) for group in written) == progress.n_lines == 54
    assert progress.share == 1
    assert len(set(seen)) > 1  # batch by batch
    for lines in (["water", "", "bread"], ["", ""]):
        seen.clear()
        list(translator.stream(lines, on_progress=seen.append))
        assert round(sum(seen), 6) == len(lines)


class Terminal:
    """A terminal of 100 columns, and everything that is written to it."""

    def __enter__(self):
        self.mine, self.theirs = pty.openpty()
        self.seen = ""
        return self

    def __exit__(self, *_):
        os.close(self.mine)
        os.close(self.theirs)

    def read(self, seconds: float) -> None:
        """Wait for output, but not for long."""
        if select.select([self.mine], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.mine, 1 << 16).decode(errors="replace")

    def run(self, command, interrupt_when=lambda: False, **streams) -> int:
        """Run `command`, send SIGINT when the condition holds, and return its exit code."""
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""}
        process = subprocess.Popen([*map(str, command)], env=environment, **streams)
        end = time.monotonic() + SECONDS
        try:
            while process.poll() is None:
                assert time.monotonic() < end, f"still running: {self.seen!r}"
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
    def rest(self) -> str:
        """What the user still sees of the last line."""
        last = re.split(r"\x1b\[2K", self.seen)[-1]
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", last).strip()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").write_text("water\nthe man sees a book\n" * 30)
    return tmp_path / "in", tmp_path / "out"


@pytest.mark.parametrize("how", ["--output", "redirected"])
def test_a_terminal_shows_a_bar_and_clears_it(tiny_trained, files, how):
    source, output = files
    command = [*MTCLI, "translate", tiny_trained, source]
    with Terminal() as terminal, output.open("wb") as file:
        if how == "--output":
            code = terminal.run([*command, "--output", output], stderr=terminal.theirs)
        else:
            code = terminal.run(command, stdout=file, stderr=terminal.theirs)
    assert code == 0
    assert output.read_bytes().count(b"\n") == 60
    for part in (BAR, "100%", "60 lines", "left"):
        assert part in terminal.seen
    assert not terminal.rest or terminal.rest.startswith("note:")
    assert terminal.seen.rfind("\x1b[?25h") > terminal.seen.rfind("\x1b[?25l")  # the cursor


def test_a_stream_has_lines_but_no_percentage(tiny_trained, files):
    with Terminal() as terminal:
        command = f"cat {files[0]} | {' '.join(MTCLI)} translate {tiny_trained} --output {files[1]}"
        assert terminal.run(["bash", "-c", command], stderr=terminal.theirs) == 0
    assert "60 lines" in terminal.seen
    assert "%" not in terminal.seen


@pytest.mark.parametrize("how", ["--quiet", "same terminal", "pipe after it", "typed"])
def test_there_is_no_bar_where_it_would_disturb(tiny_trained, files, how):
    command = [*MTCLI, "translate", tiny_trained, files[0]]
    with Terminal() as terminal:
        streams = {"stderr": terminal.theirs}
        match how:
            case "--quiet":
                command += ["--quiet", "--output", files[1]]
            case "same terminal":
                streams["stdout"] = terminal.theirs
            case "pipe after it":
                command = ["bash", "-c", f"{' '.join(map(str, command))} | cat > {files[1]}"]
            case "typed":
                command = [*MTCLI, "translate", tiny_trained, "--output", files[1]]
                streams["stdin"] = terminal.theirs
                os.write(terminal.mine, b"water\n\x04")
        assert terminal.run(command, **streams) == 0
    assert BAR not in terminal.seen
    assert "\x1b[2K" not in terminal.seen


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_a_pipe_gets_no_bar(tiny_trained, files, command):
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
    assert all(line.startswith("note:") for line in result.stderr.splitlines())


@pytest.mark.parametrize("is_quiet", [False, True])
def test_evaluate_shows_the_same_bar(tiny_trained, files, is_quiet):
    quiet = ["--quiet"] if is_quiet else []
    command = [*MTCLI, "evaluate", tiny_trained, files[0], files[0], *quiet]
    with Terminal() as terminal, files[1].open("wb") as file:
        assert terminal.run(command, stdout=file, stderr=terminal.theirs) == 0
    assert files[1].read_text().startswith("BLEU ")
    assert (BAR in terminal.seen) == ("100%" in terminal.seen) == (not is_quiet)
    assert not terminal.rest


@pytest.mark.parametrize("end", ["Ctrl-C", "a mistake"])
def test_the_terminal_is_tidy_after(tiny_trained, files, end):
    entry, source = os.pipe()
    command = [*MTCLI, "translate", tiny_trained, "--output", files[1], "--strict"]
    with Terminal() as terminal:

        def is_written() -> bool:
            is_shown = "1 line " in terminal.seen
            return is_shown and files[1].read_bytes().endswith(b"\n")

        if end == "Ctrl-C":
            os.write(source, b"water\n")  # and no end: the program waits for more
            code = terminal.run(command, is_written, stdin=entry, stderr=terminal.theirs)
        else:
            os.write(source, b"water\n\xff\n")
            os.close(source)
            code = terminal.run(command, stdin=entry, stderr=terminal.theirs)
    os.close(entry)
    assert BAR in terminal.seen
    assert files[1].read_bytes().count(b"\n") == 1
    assert terminal.seen.rfind("\x1b[?25h") > terminal.seen.rfind("\x1b[?25l")
    if end == "Ctrl-C":
        os.close(source)
        assert code == 130
        assert terminal.rest in ("", "^C")
    else:
        assert code == 1
        assert terminal.rest.startswith("error: standard input, line 2: not valid UTF-8")

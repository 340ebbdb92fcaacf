"""tests/processes.py: every wait has a timeout, and no process outlives a test."""

import os
import subprocess

import pytest

import processes


def test_reading_from_a_silent_process_times_out(monkeypatch):
    monkeypatch.setattr(processes, "TIMEOUT", 0.05)
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(AssertionError, match="no output within the timeout"):
            processes.Output(read_end).until(b"x")
        os.write(write_end, b"abc")
        with pytest.raises(AssertionError, match="after b'abc'"):
            processes.Output(read_end).rest()
    finally:
        os.close(read_end)
        os.close(write_end)


def test_the_error_shows_the_output_of_a_process_that_ended_too_early():
    with processes.started("echo one; echo two", stdout=subprocess.PIPE) as process:
        output = processes.Output(process.stdout.fileno())
        assert output.line_with(b"one") == b"one\n"
        with pytest.raises(AssertionError, match="ended without b'three': b'two"):
            output.until(b"three")


def test_no_process_or_child_process_outlives_the_with_block():
    with processes.started("sleep 3600 & echo; wait", stdout=subprocess.PIPE) as process:
        processes.Output(process.stdout.fileno()).until(b"\n")
        pids = [process.pid, *processes.descendants(process.pid)]
        assert len(pids) == 2
    processes.wait_until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    """Return whether `pid` exists and is not a zombie."""
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False, timeout=60
    ).stdout.strip()
    return state not in (b"", b"Z")

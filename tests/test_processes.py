"""Tests of the tools that start processes: nothing waits for ever, and nothing stays behind."""

import os
import subprocess

import pytest

import processes


def test_a_silent_process_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(processes, "LIMIT", 0.05)
    entry, end = os.pipe()
    try:
        with pytest.raises(AssertionError, match="nothing more came"):
            processes.Output(entry).until(b"x")
        os.write(end, b"abc")
        with pytest.raises(AssertionError, match="after b'abc'"):
            processes.Output(entry).rest()
    finally:
        os.close(entry)
        os.close(end)


def test_an_output_that_ends_too_soon_is_shown():
    with processes.started("echo one; echo two", stdout=subprocess.PIPE) as process:
        output = processes.Output(process.stdout.fileno())
        assert output.line_with(b"one") == b"one\n"
        with pytest.raises(AssertionError, match="ended without b'three': b'two"):
            output.until(b"three")


def test_processes_and_their_children_do_not_outlive_the_block():
    with processes.started("sleep 3600 & echo; wait", stdout=subprocess.PIPE) as process:
        processes.Output(process.stdout.fileno()).until(b"\n")
        pids = [process.pid, *processes.descendants(process.pid)]
        assert len(pids) == 2
    processes.wait_until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    """Return whether `pid` exists and is not only waiting for its parent to notice its end."""
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False, timeout=60
    ).stdout.strip()
    return state not in (b"", b"Z")

"""Measure the memory use of `mtcli translate` while it reads millions of lines from a pipe.

python benchmarks/memory.py MODEL SOURCE [--lines N]

The lines in SOURCE are repeated, with numbers that make every line different. To save time, the
search is greedy and has a small maximum length.
"""

import argparse
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

from mtcli.data.lines import read_lines

N_MEASUREMENTS = 20


def resident_megabytes(process: subprocess.Popen) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def main() -> None:
    """Pipe lines through `mtcli translate` and print its memory use at regular intervals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=2_000_000)
    arguments = parser.parse_args()
    lines = itertools.cycle(list(read_lines(arguments.source)))
    command = [sys.executable, "-m", "mtcli", "translate", arguments.model]
    command += ["--beam-size", "1", "--max-length", "8", "--quiet"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def feed() -> None:
        for i in range(arguments.lines):
            process.stdin.write(f"{i} {next(lines)}\n".encode())
        process.stdin.close()

    threading.Thread(target=feed).start()
    start, n_read = time.perf_counter(), 0
    for _ in process.stdout:
        n_read += 1
        if n_read % (arguments.lines // N_MEASUREMENTS) == 0 and n_read < arguments.lines:
            rate = n_read / (time.perf_counter() - start)
            print(
                f"{n_read:>9} lines  {resident_megabytes(process):6.1f} MB  {rate:.0f} lines/s",
                flush=True,
            )
    assert process.wait() == 0
    assert n_read == arguments.lines, n_read
    print(f"{n_read} lines in, {n_read} lines out")


main()

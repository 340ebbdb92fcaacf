"""The memory of `mtcli translate` while millions of lines go through a pipe.

python benchmarks/memory.py MODEL SOURCE [--lines N]

The lines of SOURCE are written over and over, numbered so that no two are the same; translations
are greedy and cut off early, for it is not quality that counts here.
"""

import argparse
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

from mtcli.lines import read_lines

CHECKS = 20


def resident(process: subprocess.Popen) -> float:
    """Megabytes that a process has in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def main() -> None:
    """Feed, read, and look at the memory now and then."""
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
    began, n_read = time.perf_counter(), 0
    for _ in process.stdout:
        n_read += 1
        if n_read % (arguments.lines // CHECKS) == 0 and n_read < arguments.lines:
            rate = n_read / (time.perf_counter() - began)
            print(f"{n_read:>9} lines  {resident(process):6.1f} MB  {rate:.0f} lines/s", flush=True)
    assert process.wait() == 0
    assert n_read == arguments.lines, n_read
    print(f"{n_read} lines in, {n_read} lines out")


main()

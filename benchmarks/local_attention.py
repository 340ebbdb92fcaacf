"""Measure the time and memory use of local and full self-attention, forward and backward.

    python benchmarks/local_attention.py [--window 128] [--rounds 5]

The script measures one attention module of width 256 with 4 heads, as in an encoder and as in a
decoder, in one thread. Both kinds of attention and all lengths run in turn. CPU times and their
ratios are medians over the rounds. Memory use is the increase in peak memory, measured in a new
process.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LENGTHS = (512, 1024, 2048, 4096)


def main() -> None:
    """Print one table for the encoder and one for the decoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", nargs=3, type=int, help="Length, window, 1 for causal.")
    options = parser.parse_args()
    if options.memory:
        print(measure_peak(*options.memory))
        return
    for is_causal in (False, True):
        side = "decoder" if is_causal else "encoder"
        print(f"\n| {side} | local | growth (time, memory) | full | speedup |")
        print("| --- | ---: | ---: | ---: | ---: |")
        report(options.window, options.rounds, is_causal)


def report(window: int, n_rounds: int, is_causal: bool) -> None:
    """Print one row per length; each round measures every length with each kind of attention."""
    passes = {n: [build_pass(n, size, is_causal) for size in (window, 0)] for n in LENGTHS}
    rounds = [{n: [run() for run in runs] for n, runs in passes.items()} for _ in range(n_rounds)]
    previous: tuple[int, int] | None = None  # length and memory of the previous row
    for n in LENGTHS:
        local, full = (statistics.median(seconds[n][i] for seconds in rounds) for i in (0, 1))
        memory = [measure_memory(n, size, is_causal) for size in (window, 0)]
        growth = ""
        if previous:
            ratio = statistics.median(seconds[n][0] / seconds[previous[0]][0] for seconds in rounds)
            growth = f"{ratio:.2f}, {memory[0] / previous[1]:.2f}"
        previous = n, memory[0]
        speedup = statistics.median(seconds[n][1] / seconds[n][0] for seconds in rounds)
        print(
            f"| {n} | {local * 1e3:.0f} ms, {memory[0] / 1e6:.0f} MB | {growth} "
            f"| {full * 1e3:.0f} ms, {memory[1] / 1e6:.0f} MB | {speedup:.1f} times |",
            flush=True,
        )


def build_pass(length: int, window: int, is_causal: bool) -> Callable[[], float]:
    """Return a function that runs forward and backward once and returns the CPU seconds.

    The function has already run once, as a warm-up. Window 0 means full attention.
    """
    import torch

    from mtcli.config.transformers import TransformerConfig
    from mtcli.models.attention import Attention
    from mtcli.models.masks import AttentionMask
    from mtcli.models.positions import build_self_dot_product

    torch.set_num_threads(1)
    config = TransformerConfig(d_model=256, n_heads=4)
    attention = Attention(config, build_self_dot_product(config))
    x = torch.randn(1, length, 256, requires_grad=True)
    is_token = torch.ones(1, length, dtype=torch.bool)

    def run() -> float:
        start = time.process_time()
        mask = AttentionMask(length, length, x.device, is_token, 0, is_causal, window or None)
        attention(x, attention.key_values(x), mask).sum().backward()
        return time.process_time() - start

    run()
    return run


def measure_memory(length: int, window: int, is_causal: bool) -> int:
    """Return the bytes that a pass needs, measured in a new process."""
    numbers = map(str, (length, window, int(is_causal)))
    return int(subprocess.check_output([sys.executable, __file__, "--memory", *numbers]))


def measure_peak(length: int, window: int, is_causal: int) -> int:
    """Return how many bytes a pass adds to the peak memory of this process."""
    build_pass(8, 4, bool(is_causal))  # warm-up
    Path("/proc/self/clear_refs").write_text("5")  # Linux: reset the peak
    before = read_memory("VmRSS")
    build_pass(length, window, bool(is_causal))
    return read_memory("VmHWM") - before


def read_memory(kind: str) -> int:
    """Return the current (VmRSS) or peak (VmHWM) memory of this process on Linux, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(kind)]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()

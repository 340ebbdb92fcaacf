"""Local against full self-attention: time and memory of one forward and backward pass.

    python benchmarks/local_attention.py [--window 128] [--rounds 5]

One attention of width 256 with 4 heads, as in an encoder and as in a decoder, one thread. Both
kinds and all lengths take turns; of CPU seconds and their ratios the medians over the rounds are
shown. Memory is how much the peak rises, in fresh processes.
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
    """Print a table for the encoder, and one for the decoder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", nargs=3, type=int, help="length, window, causal or not")
    options = parser.parse_args()
    if options.memory:
        print(peak(*options.memory))
        return
    for is_causal in (False, True):
        print(f"\n| {'decoder' if is_causal else 'encoder'} | local | grows | full | faster |")
        print("| --- | ---: | ---: | ---: | ---: |")
        report(options.window, options.rounds, is_causal)


def report(window: int, n_rounds: int, is_causal: bool) -> None:
    """One row for each length; a round is one pass of each length and of each kind."""
    passes = {n: [a_pass(n, wide, is_causal) for wide in (window, 0)] for n in LENGTHS}
    rounds = [{n: [once() for once in ways] for n, ways in passes.items()} for _ in range(n_rounds)]
    last: tuple[int, int] | None = None
    for n in LENGTHS:
        local, full = (statistics.median(seen[n][i] for seen in rounds) for i in (0, 1))
        memory = [memory_of(n, wide, is_causal) for wide in (window, 0)]
        grows = ""
        if last:
            slower = statistics.median(seen[n][0] / seen[last[0]][0] for seen in rounds)
            grows = f"{slower:.2f}, {memory[0] / last[1]:.2f}"
        last = n, memory[0]
        faster = statistics.median(seen[n][1] / seen[n][0] for seen in rounds)
        print(
            f"| {n} | {local * 1e3:.0f} ms, {memory[0] / 1e6:.0f} MB | {grows} "
            f"| {full * 1e3:.0f} ms, {memory[1] / 1e6:.0f} MB | {faster:.1f} times |",
            flush=True,
        )


def a_pass(length: int, window: int, is_causal: bool) -> Callable[[], float]:
    """A function that runs forward and backward once and returns CPU seconds."""
    import torch

    from mtcli.config import TransformerConfig
    from mtcli.models.attention import Attention
    from mtcli.models.relations import self_relation
    from mtcli.models.view import View

    torch.set_num_threads(1)
    config = TransformerConfig(d_model=256, n_heads=4)
    attention = Attention(config, self_relation(config))
    x = torch.randn(1, length, 256, requires_grad=True)
    words = torch.ones(1, length, dtype=torch.bool)

    def once() -> float:
        began = time.process_time()
        view = View(length, length, x.device, words, 0, is_causal, window or None)
        attention(x, attention.key_values(x), view).sum().backward()
        return time.process_time() - began

    once()
    return once


def memory_of(length: int, window: int, is_causal: bool) -> int:
    """Bytes that a pass needs, in a process of its own."""
    numbers = map(str, (length, window, int(is_causal)))
    return int(subprocess.check_output([sys.executable, __file__, "--memory", *numbers]))


def peak(length: int, window: int, is_causal: int) -> int:
    """By how much the memory in use rises at the most, after a pass of next to nothing."""
    a_pass(8, 4, bool(is_causal))
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak is counted from now on
    before = memory_in_use("VmRSS")
    a_pass(length, window, bool(is_causal))
    return memory_in_use("VmHWM") - before


def memory_in_use(kind: str) -> int:
    """Bytes, as Linux counts them: now, or at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(kind)]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()

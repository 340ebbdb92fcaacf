"""Protocol between benchmarks/train.py and its workers. Uses only the standard library."""

import json
import resource
import sys
import time
from collections.abc import Callable


def answer(train: Callable[[int], tuple[int, int, float]]) -> None:
    """For each number N on stdin, train for N steps and print the measurements as JSON.

    `train` returns the number of tokens without padding, the number of positions, and the last
    loss.
    """
    for line in sys.stdin:
        start, began = time.process_time(), time.perf_counter()
        n_tokens, n_positions, loss = train(int(line))
        measurements = {
            "seconds": time.process_time() - start,
            "elapsed": time.perf_counter() - began,
            "tokens": n_tokens,
            "positions": n_positions,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "loss": loss,
        }
        print(json.dumps(measurements), flush=True)

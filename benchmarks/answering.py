"""How a program that trains answers benchmarks/train.py; it needs nothing but Python."""

import json
import resource
import sys
import time
from collections.abc import Callable


def answer(train: Callable[[int], tuple[int, int, float]]) -> None:
    """For each number on stdin make so many steps, and say what they took.

    `train` returns the tokens that were no padding, all positions, and the last loss.
    """
    for line in sys.stdin:
        began = time.process_time()
        n_tokens, n_positions, loss = train(int(line))
        facts = {
            "seconds": time.process_time() - began,
            "tokens": n_tokens,
            "positions": n_positions,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "loss": loss,
        }
        print(json.dumps(facts), flush=True)

"""Compare the scores and CPU time of torch and of CTranslate2 in float32 and int8.

python benchmarks/scoring.py MODEL SOURCE TARGET
"""

import sys
import time
from pathlib import Path

from mtcli.config.search import EngineOptions
from mtcli.data.lines import read_aligned
from mtcli.translation.engines import open_engine
from mtcli.translation.scoring import Pair, PairScore, PairScorer, pair_groups, total_scores

ENGINES = {
    "torch": EngineOptions(engine="torch", shortlist=False),
    "ctranslate2 float32": EngineOptions(
        engine="ctranslate2", quantization="float32", shortlist=False
    ),
    "ctranslate2 int8": EngineOptions(engine="ctranslate2", quantization="int8", shortlist=False),
}


def score(model: Path, pairs: list[Pair], options: EngineOptions) -> tuple[list[PairScore], float]:
    """Return the scores, and the CPU time in seconds without loading the model."""
    scorer = PairScorer(open_engine(model, options))
    began = time.process_time()
    scores = [s for group in scorer.score_groups(pair_groups(pairs)) for s in group]
    return scores, time.process_time() - began


def main() -> None:
    """Print the perplexity, the CPU time and the largest per-token difference from torch."""
    model, source, target = map(Path, sys.argv[1:])
    pairs = [Pair(*pair) for pair in zip(*read_aligned([source, target]), strict=True)]
    reference: list[PairScore] = []
    for name, options in ENGINES.items():
        scores, seconds = score(model, pairs, options)
        reference = reference or scores
        differences = [
            abs(a - b)
            for ours, theirs in zip(reference, scores, strict=True)
            for a, b in zip(ours.log_probs, theirs.log_probs, strict=True)
        ]
        perplexity = total_scores(pairs, scores).perplexity
        print(
            f"{name:<20} largest difference per token {max(differences):.1e}, perplexity "
            f"{perplexity:.4f}, {seconds:.1f} CPU seconds, {len(pairs) / seconds:,.0f} pairs/s"
        )


if __name__ == "__main__":
    main()

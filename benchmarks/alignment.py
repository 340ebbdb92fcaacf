"""Measure the alignment error rate of a model.

    python benchmarks/alignment.py MODEL SOURCE TARGET ALIGNMENT

ALIGNMENT is the gold alignment in Pharaoh format. The model is forced to output TARGET, and the
words are aligned as in `mtcli translate --alignment`. For the torch engine, the script also prints
the error rate for each layer and head.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from mtcli import EngineOptions, Translator
from mtcli.translation.alignment import Alignment, align_words
from mtcli.translation.engines.base import Source

BATCH = 50
ENGINES = {
    "torch": EngineOptions(engine="torch", device="cpu"),
    "ctranslate2, float32": EngineOptions(
        engine="ctranslate2", device="cpu", quantization="float32"
    ),
    "ctranslate2, int8": EngineOptions(engine="ctranslate2", device="cpu", quantization="int8"),
}


def error_rate(found: Iterable[Alignment], true: Iterable[set[tuple[int, int]]]) -> float:
    """Return the alignment error rate (Och and Ney 2003) with sure links only."""
    n_common = n_links = 0
    for links, expected in zip(found, true, strict=True):
        n_common += len(expected.intersection(links))
        n_links += len(links) + len(expected)
    return 1 - 2 * n_common / n_links


def forced_alignments(translator: Translator, pairs: list[tuple[str, str]]) -> Iterator[Alignment]:
    """Yield the alignment that the engine computes for each pair."""
    source_tokenizer, target_tokenizer = translator.tokenizers.source, translator.tokenizers.target
    options = replace(translator.options, beam_size=1, n_best=1, with_alignment=True)
    for start in range(0, len(pairs), BATCH):
        sources = [
            Source(tuple(source_tokenizer.tokenize(s)), tuple(target_tokenizer.tokenize(t)))
            for s, t in pairs[start : start + BATCH]
        ]
        limit = 2 + max(len(source.prefix) for source in sources)
        found = translator.engine.search(sources, options, limit)
        for source, [best] in zip(sources, found, strict=True):
            rows = list(best.attention)[: len(source.prefix)]
            yield align_words(source.pieces, source.prefix, rows)


def main() -> None:
    """Print the error rate of each engine, then of each layer and head."""
    model, *files = sys.argv[1:]
    source, target, alignment = (
        Path(file).read_text(encoding="utf-8").splitlines() for file in files
    )
    pairs = list(zip(source, target, strict=True))
    true = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in alignment]
    for name, options in ENGINES.items():
        found = forced_alignments(Translator(model, engine=options), pairs)
        print(f"{name}: {error_rate(found, true):.3f}")
    translator = Translator(model, engine=ENGINES["torch"])
    traced = [translator.attention(s, t).parts[0] for s, t in pairs]
    stack = traced[0].stacks[traced[0].main_kind]
    print("chosen:", traced[0].map().title)
    for layer in range(stack.n_layers):
        for head in (None, *range(stack.n_heads)):
            maps = [sentence.map(layer=layer, head=head) for sentence in traced]
            found = (align_words(m.columns[:-1], m.rows[:-1], m.weights[:-1, :-1]) for m in maps)
            print(f"{maps[0].title}: {error_rate(found, true):.3f}")


if __name__ == "__main__":
    main()

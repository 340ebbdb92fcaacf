"""Baseline without mtcli: translate all lines of a file with CTranslate2 in int8.

python benchmarks/direct_ctranslate2.py EXPORT TOKENIZER SOURCE TARGET BEAM_SIZE
"""

import os
import sys

import ctranslate2
import sentencepiece

export, tokenizer_file, source, target, beam_size = sys.argv[1:]
tokenizer = sentencepiece.SentencePieceProcessor(model_file=tokenizer_file)
translator = ctranslate2.Translator(
    export, compute_type="int8", inter_threads=os.cpu_count(), intra_threads=1
)
with open(source, encoding="utf-8") as file:  # noqa: PTH123
    lines = file.read().removesuffix("\n").split("\n")
results = translator.translate_batch(  # sorts by length and splits into batches
    tokenizer.encode(lines, out_type=str),
    beam_size=int(beam_size),
    max_batch_size=32 if int(beam_size) > 1 else 64,
    max_decoding_length=256,
    max_input_length=0,
    length_penalty=1,
)
texts = tokenizer.decode([result.hypotheses[0] for result in results])
with open(target, "w", encoding="utf-8") as file:  # noqa: PTH123
    file.writelines(f"{text}\n" for text in texts)

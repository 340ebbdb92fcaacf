"""Compare the time from process start to the first translated line with the model loading time.

python benchmarks/latency.py MODEL [--rounds N]
"""

import argparse
import statistics
import subprocess
import sys
import time

LOAD_ONLY = """
import ctranslate2, sentencepiece
sentencepiece.SentencePieceProcessor(model_file="{model}/tokenizer.model")
ctranslate2.Translator("{model}/ctranslate2", compute_type="int8", inter_threads=2, intra_threads=1)
print(flush=True)
"""


def seconds_to_first_line(command: list[str]) -> float:
    """Return the seconds from the start of a process to its first output line."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"A man sees a dog.\n")
        process.stdin.flush()
        process.stdout.readline()
        seconds = time.perf_counter() - start
        process.stdin.close()
    return seconds


def main() -> None:
    """Measure the programs in interleaved runs and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    commands = {
        "imports and model": [sys.executable, "-c", LOAD_ONLY.format(model=arguments.model)],
        "mtcli translate": [sys.executable, "-m", "mtcli", "translate", arguments.model],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            seconds[name].append(seconds_to_first_line(command))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        print(f"{name:<20}{median:.3f} s")
    print(f"{'difference':<20}{medians['mtcli translate'] - medians['imports and model']:.3f} s")


main()

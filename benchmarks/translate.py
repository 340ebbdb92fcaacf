"""Compare the translation time of mtcli, CTranslate2 and Hugging Face, from process start to exit.

All programs use the same weights and take turns. Times are medians over the rounds. Ratios are
medians of the ratios within a round, because the machine's load affects both programs.

python benchmarks/translate.py MODEL SOURCE [REFERENCE] [--lines N] [--beam-size N] [--rounds N]
                               [--hugging-face PYTHON]

MODEL is a directory written by `mtcli train`. PYTHON is the interpreter of an environment with
Hugging Face transformers. Every program reads an input file and writes its translation to a file.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mtcli.data.lines import read_lines
from mtcli.evaluation.scores import compute_scores

HERE = Path(__file__).parent


def build_commands(arguments: argparse.Namespace, scratch: Path) -> dict[str, list[str]]:
    """Export the model; return the command for each program, with {out} for its output file."""
    model, source, beam = arguments.model, scratch / "source", str(arguments.beam_size)
    mtcli = [sys.executable, "-m", "mtcli", "translate", model, str(source), "--beam-size", beam]
    mtcli += ["--output", "{out}"]
    export, tokenizer = scratch / "export", Path(model) / "tokenizer.model"
    export_command = [sys.executable, "-m", "mtcli", "export", model, "--to", "ctranslate2"]
    subprocess.run(
        [*export_command, "--output", str(export)], check=True, stdout=subprocess.DEVNULL
    )
    direct = [sys.executable, str(HERE / "direct_ctranslate2.py"), str(export), str(tokenizer)]
    commands = {
        "mtcli": [*mtcli, "--shortlist"],
        "mtcli --no-shortlist": [*mtcli, "--no-shortlist"],
        "CTranslate2 int8, directly": [*direct, str(source), "{out}", beam],
    }
    if arguments.torch:
        commands["mtcli --engine torch"] = [*mtcli, "--engine", "torch"]
    if arguments.hugging_face:
        script = str(HERE / "hugging_face.py")
        commands["Hugging Face generate"] = [
            arguments.hugging_face, script, model, str(source), "{out}", beam,
        ]  # fmt: skip
    return commands


def measure_seconds(command: list[str], out: Path) -> float:
    """Run `command` and return the seconds it takes."""
    start = time.perf_counter()
    subprocess.run([part.format(out=out) for part in command], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure all programs and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path, nargs="?")
    parser.add_argument("--lines", type=int)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hugging-face", help="slow: runs in the first round only")
    parser.add_argument("--torch", action="store_true", help="slow: runs in the first round only")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    lines = list(read_lines(arguments.source))[: arguments.lines]
    (scratch / "source").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    commands = build_commands(arguments, scratch)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(arguments.rounds):
        # Alternate the order so that no program benefits if the machine becomes slower.
        for name, command in list(commands.items())[:: -1 if i % 2 else 1]:
            if i == 0 or not name.startswith(("Hugging", "mtcli --engine")):
                seconds[name].append(measure_seconds(command, scratch / name))
    base = seconds["CTranslate2 int8, directly"]
    print(f"{len(lines)} lines, beam {arguments.beam_size}, medians of {arguments.rounds} rounds\n")
    print("| program | seconds | sentences/s | speedup over CTranslate2 | BLEU |")
    print("| --- | --- | --- | --- | --- |")
    for name, times in seconds.items():
        median = statistics.median(times)
        score = ""
        if arguments.reference:
            references = list(read_lines(arguments.reference))[: len(lines)]
            scores = compute_scores(list(read_lines(scratch / name)), [references])
            score = f"{scores['bleu'].value:.2f}"
        rate = len(lines) / median
        ratio = statistics.median(b / t for b, t in zip(base, times, strict=False))
        print(f"| {name} | {median:.2f} | {rate:.0f} | {ratio:.2f} x | {score} |")
    shutil.rmtree(scratch)


main()

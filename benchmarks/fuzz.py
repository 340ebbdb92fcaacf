"""Fuzz test for `mtcli translate`: each random line must produce one output line, in order.

python benchmarks/fuzz.py MODEL [--engine torch|ctranslate2] [--lines N] [--seed N]
"""

import argparse
import random
import subprocess
import sys

ALPHABETS = [
    "the old man sees a dog in the garden. ",
    "äöüßéñçøåæœ€£¿¡«»„“”‚’",
    "\x00\x01\x0b\x0c\x1b\x1c\x1d\x1e\x85\u2028\u2029\t\r\u00a0\u200b\u200d\ufeff",
    "🙂👩‍👩‍👧🇩🇪שלום مرحبا 漢字かな한국어ไทย",
    "e\u0301\u0302\u0303a\u0308\u0327",
    "<s></s><unk><pad><0x0A>▁&amp;\\n\\u2028{}[]\"'",
]


def random_line(rng: random.Random) -> bytes:
    """Return a blank line, random bytes, random text, or a very long word, without LF."""
    kind = rng.random()
    if kind < 0.05:
        return b" " * rng.randrange(3)
    if kind < 0.2:
        return rng.randbytes(rng.randrange(30)).replace(b"\n", b"")
    if kind < 0.2005:
        return ("x" * rng.randrange(10_000)).encode()
    alphabets = rng.sample(ALPHABETS, rng.choice([1, 1, 2, 3]))
    return "".join(rng.choices("".join(alphabets), k=rng.randrange(60))).encode()


def main() -> None:
    """Translate the lines and check their number and order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    # Every tenth line is the same marker: a lost or repeated line would shift its translations.
    marker_rows = {i for i in range(arguments.lines) if i % 10 == 5}
    marker = b"The old man sees a dog."
    lines = [marker if i in marker_rows else random_line(rng) for i in range(arguments.lines)]
    command = [sys.executable, "-m", "mtcli", "translate", arguments.model]
    command += ["--beam-size", "1", "--max-length", "12", "--engine", arguments.engine]
    stdin = b"".join(each + b"\n" for each in lines)
    result = subprocess.run(command, input=stdin, capture_output=True, check=True)
    found = result.stdout.split(b"\n")[:-1]
    assert len(found) == len(lines), f"{len(lines)} lines in, {len(found)} out"
    assert len({found[i] for i in marker_rows}) == 1, "a line was lost, repeated or swapped"
    assert all(len(text.decode().splitlines()) <= 1 for text in found), (
        "line break in a translation"
    )
    print(f"{len(lines)} lines in, {len(found)} out, in order ({arguments.engine})")
    print(result.stderr.decode(), end="")


main()

"""Translating for a person at a terminal: a prompt with a memory."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from mtcli.errors import MtcliError
from mtcli.options import SearchOptions
from mtcli.translation import Request, Translation, Translator

_PROMPT = "> "
_HISTORY_LINES = 1000
_HELP = """\
Type a sentence and press Enter. The arrow keys bring back what you typed before.
  :beam N       keep N hypotheses at each step (now {beam_size})
  :best N       show the N best translations with their scores (now {n_best})
  :alignment    show which word comes from which, or stop showing it
  :help         this
  :quit         leave; so does Ctrl-D"""


@dataclass(frozen=True)
class Answer:
    """What is shown, and how the next line is to be searched."""

    lines: list[str]
    options: SearchOptions
    is_over: bool = False


def ask(translator: Translator, options: SearchOptions) -> None:
    """Translate what a person types, line by line, until there is no more."""
    typer.echo("Type a sentence to translate it; :help shows what else there is.", err=True)
    with _history():
        while (line := _read()) is not None:
            try:
                answer = respond(translator, line, options)
            except (MtcliError, ValueError) as error:
                answer = Answer([str(error)], options)
            options = answer.options
            for text in answer.lines:
                typer.echo(text)
            if answer.is_over:
                return


def respond(translator: Translator, line: str, options: SearchOptions) -> Answer:
    """The answer to a line: a translation, or what a command does."""
    if not line.strip().startswith(":"):
        return Answer(list(_translated(translator, line, options)) if line.strip() else [], options)
    name, _, value = line.strip()[1:].partition(" ")
    match name:
        case "quit" | "q":
            return Answer([], options, is_over=True)
        case "help" | "h":
            shown = _HELP.format(beam_size=options.beam_size, n_best=options.n_best)
            return Answer([shown], options)
        case "alignment":
            return Answer([], replace(options, with_alignment=not options.with_alignment))
        case "beam" | "best" if value.strip().isdecimal() and int(value):
            return Answer([], _with_number(options, name, int(value)))
        case "beam" | "best":
            return Answer([f":{name} needs a number, for instance :{name} 5"], options)
        case _:
            return Answer([f"there is no :{name}; see :help"], options)


def _with_number(options: SearchOptions, name: str, number: int) -> SearchOptions:
    if name == "beam":
        return replace(options, beam_size=number, n_best=min(options.n_best, number))
    wide_enough = max(options.beam_size, number)
    return replace(options, n_best=number, beam_size=wide_enough, with_scores=True)


def _translated(translator: Translator, line: str, options: SearchOptions) -> Iterator[str]:
    began = time.perf_counter()
    [candidates] = translator.translate_all([Request(line)], options)
    milliseconds = 1000 * (time.perf_counter() - began)
    for candidate in candidates:
        score = f"{candidate.score:8.3f}  " if len(candidates) > 1 else ""
        yield score + candidate.text
        if candidate.alignment is not None:
            yield _dim(" " * len(score) + "  ".join(_links(line, candidate)))
    remarks = [f"{milliseconds:.0f} ms", *_remarks(candidates[0])]
    yield _dim(f"({', '.join(remarks)})")


def _remarks(best: Translation) -> Iterator[str]:
    if best.n_parts > 1:
        yield f"in {best.n_parts} parts: longer than what the model was trained on"
    if best.is_cut:
        yield "cut off at the longest length allowed"
    if best.is_runaway:
        yield "repeats itself"


def _links(line: str, candidate: Translation) -> Iterator[str]:
    source, target = line.split(), candidate.text.split()
    for i, j in candidate.alignment or ():
        yield f"{source[i]}–{target[j]}"


def _read() -> str | None:
    try:
        return input(_PROMPT)
    except EOFError:
        typer.echo()
        return None
    except UnicodeDecodeError:
        return ""


def _dim(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else typer.style(text, dim=True)


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Arrow keys and a history that is there again next time, where the system offers it."""
    try:
        import readline
    except ImportError:
        yield
        return
    home = os.environ.get("HOME", ".")
    path = Path(os.environ.get("XDG_STATE_HOME") or f"{home}/.local/state") / "mtcli" / "history"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_LINES)
        with contextlib.suppress(OSError):
            readline.write_history_file(path)

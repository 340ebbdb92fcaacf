"""Interactive prompt of `mtcli translate`, with commands and a history."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from mtcli.config.search import SearchOptions
from mtcli.errors import MtcliError
from mtcli.translation.line_translator import Request, Translation
from mtcli.translation.translator import Translator

_PROMPT = "> "
_HISTORY_LINES = 1000
_HELP = """\
Type a sentence and press Enter to translate it. The arrow keys recall earlier lines.
  :beam N       set the beam size (now {beam_size})
  :best N       show the N best translations with their scores (now {n_best})
  :alignment    turn the word alignment on or off
  :help         show this help
  :quit         quit (or press Ctrl-D)"""


@dataclass(frozen=True)
class Response:
    """Output for one line of input, and the search options for the next line."""

    lines: list[str]
    options: SearchOptions
    is_quit: bool = False


def run_prompt(translator: Translator, options: SearchOptions) -> None:
    """Translate the lines that the user types until :quit or end of input."""
    typer.echo("Type a sentence to translate it, or :help for help.", err=True)
    with _history():
        while (line := _read_line()) is not None:
            try:
                response = handle_line(translator, line, options)
            except (MtcliError, ValueError) as error:
                response = Response([str(error)], options)
            options = response.options
            for text in response.lines:
                typer.echo(text)
            if response.is_quit:
                return


def handle_line(translator: Translator, line: str, options: SearchOptions) -> Response:
    """Return the response to `line`: its translation, or the result of a command like `:beam 5`."""
    if not line.strip():
        return Response([], options)
    if not line.strip().startswith(":"):
        return Response(list(_translate(translator, line, options)), options)
    name, _, value = line.strip()[1:].partition(" ")
    match name:
        case "quit" | "q":
            return Response([], options, is_quit=True)
        case "help" | "h":
            return Response([_help(translator, options)], options)
        case "to":
            translator.tags.check(value.strip(), None)
            translator.to = value.strip()
            return Response([], options)
        case "alignment":
            return Response([], replace(options, with_alignment=not options.with_alignment))
        case "beam" | "best" if value.strip().isdecimal() and int(value):
            return Response([], _with_number(options, name, int(value)))
        case "beam" | "best":
            return Response([f":{name} requires a number, such as :{name} 5"], options)
        case _:
            return Response([f"unknown command :{name}; type :help for a list"], options)


def _help(translator: Translator, options: SearchOptions) -> str:
    """Return the help text; it lists :to only for models with target-language tags."""
    text = _HELP.format(beam_size=options.beam_size, n_best=options.n_best)
    if languages := ", ".join(translator.tags.languages):
        now = translator.to or "not set"
        text += f"\n  :to LANG      set the target language: {languages} (now {now})"
    return text


def _with_number(options: SearchOptions, name: str, number: int) -> SearchOptions:
    if name == "beam":
        return replace(options, beam_size=number, n_best=min(options.n_best, number))
    beam_size = max(options.beam_size, number)
    return replace(options, n_best=number, beam_size=beam_size, with_scores=True)


def _translate(translator: Translator, line: str, options: SearchOptions) -> Iterator[str]:
    start = time.perf_counter()
    [candidates] = translator.translate_all([Request(line)], options)
    milliseconds = 1000 * (time.perf_counter() - start)
    for candidate in candidates:
        score = f"{candidate.score:8.3f}  " if len(candidates) > 1 else ""
        yield score + candidate.text
        if candidate.alignment is not None:
            yield _dim(" " * len(score) + "  ".join(_links(line, candidate)))
    notes = [f"{milliseconds:.0f} ms", *_notes(candidates[0])]
    yield _dim(f"({', '.join(notes)})")


def _notes(best: Translation) -> Iterator[str]:
    if best.n_parts > 1:
        yield f"split into {best.n_parts} parts, because it is longer than the training sentences"
    if best.is_truncated:
        yield "truncated at the maximum length"
    if best.is_repetitive:
        yield "repeats itself"


def _links(line: str, candidate: Translation) -> Iterator[str]:
    source, target = line.split(), candidate.text.split()
    for i, j in candidate.alignment or ():
        yield f"{source[i]}–{target[j]}"


def _read_line() -> str | None:
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
    """Run the block with line editing and a saved history, if readline is available."""
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

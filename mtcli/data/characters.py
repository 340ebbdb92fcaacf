"""Properties of characters and lines in any script: letters, scripts, words, damaged text."""

import re
import unicodedata
from functools import cache

from mtcli.config.filters import SCRIPTS

# Scripts without spaces between words: first and last code point, mean characters per word.
_UNSPACED = (
    (0x0E00, 0x0EFF, 4.0),  # Thai, Lao
    (0x1000, 0x109F, 4.0),  # Burmese
    (0x1780, 0x17FF, 4.0),  # Khmer
    (0x3040, 0x30FF, 2.0),  # Hiragana, Katakana
    (0x3400, 0x9FFF, 1.7),  # Han
    (0x20000, 0x3FFFF, 1.7),  # Han, rare
)

_ANY_UNSPACED = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last, _ in _UNSPACED)}]"
)

# Words in the Unicode name of a character that identify its script.
_SCRIPT_WORDS = {script.upper(): script for script in SCRIPTS} | {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "KATAKANA-HIRAGANA": "Katakana",
}

# Characters that Windows-1252 and Latin-1 assign to the bytes 0x80 to 0xBF. In UTF-8, these are
# continuation bytes.
_CONTINUATION = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
# The same characters, except those that may follow a letter in intact text, such as quotes, dashes,
# ellipses and spaces.
_UNNATURAL = "\x80-\x84\x86-\x9f¡-ª¬-¶¸-º¼-¿€ƒ†‡ˆ‰ŠŒŽ•˜™šœžŸ"
_DAMAGED = re.compile(
    "\N{REPLACEMENT CHARACTER}"
    "|[Â-ô][\x80-\x84\x86-\x9f]"  # UTF-8 decoded as Latin-1
    f"|[ÂÃ][{_UNNATURAL}]"  # UTF-8 decoded as Windows-1252: é becomes Ã©
    "|â€|â‚¬|â„¢|â†|ï¿½|ï»¿"  # curly quotes and dashes, €, ™, arrows, U+FFFD, byte order mark
    f"|(?:[ÐÑ][{_CONTINUATION}]){{2}}"  # Cyrillic
    f"|(?:[Â-ß][{_CONTINUATION}]){{3}}"  # Greek, Hebrew, Arabic
    f"|(?:[à-ï][{_CONTINUATION}]{{2}}){{2}}"  # Chinese, Japanese, Korean, Hindi, Thai
    f"|ðŸ[{_CONTINUATION}]{{2}}"  # emoji
)
_SUSPICIOUS = re.compile(f"[ÂÃ][{_CONTINUATION}]")


@cache
def is_letter(character: str) -> bool:
    """Return whether a character is a letter, or a mark such as a vowel sign in Hindi or Thai."""
    return character.isalpha() or unicodedata.category(character).startswith("M")


@cache
def script_of(character: str) -> str | None:
    """Return the script of a letter; None for other characters or if it is not in `SCRIPTS`."""
    if not is_letter(character):
        return None
    words = unicodedata.name(character, "").split()[:3]
    return next((_SCRIPT_WORDS[word] for word in words if word in _SCRIPT_WORDS), None)


def letters_of(text: str) -> str:
    """Return the letters in `text`, in lower case and without any other characters."""
    if text.isascii():
        return text.encode().translate(_ASCII_LOWER, _ASCII_OTHERS).decode()
    return text.translate(_LETTERS)


class _Letters(dict[int, str]):
    """Table for `str.translate` that lowercases letters and deletes all other characters."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        lower = character.lower()
        # Do not lowercase İ, because its lowercase form has two characters. Do not lowercase the
        # Kelvin sign either: it has three bytes in UTF-8, but its lowercase form k has one, so
        # `letter_sums` would differ.
        lower = lower if len(lower) == 1 and character != "\N{KELVIN SIGN}" else character
        self[code] = lower if is_letter(character) else ""
        return self[code]


_LETTERS = _Letters()
_ASCII_LOWER = bytes(range(256)).lower()
_ASCII_OTHERS = bytes(code for code in range(128) if not chr(code).isalpha())


def count_words(line: str) -> float:
    """Return the number of words in a line; estimate it for scripts without spaces."""
    n_words = float(len(line.split()))
    if line.isascii() or not _ANY_UNSPACED.search(line):
        return n_words
    for first, last, length in _UNSPACED:
        n_words += sum(first <= ord(character) <= last for character in line) / length
    return n_words


def is_damaged(line: str) -> bool:
    """Return whether a line contains U+FFFD, or UTF-8 text decoded as Latin-1 or Windows-1252."""
    if line.isascii():
        return False
    return bool(_DAMAGED.search(line)) or (bool(_SUSPICIOUS.search(line)) and _is_recoded(line))


def _is_recoded(line: str) -> bool:
    """Return whether the Windows-1252 encoding of a line is valid UTF-8."""
    try:
        line.encode("cp1252").decode()
    except UnicodeError:
        return False
    return True

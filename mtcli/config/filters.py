"""Config section `filters`: the pairs to drop from the training set."""

from difflib import get_close_matches
from typing import Literal, Self

from pydantic import Field, field_validator

from mtcli.config.base import Float, Int, Section

SCRIPTS = (
    *("Arabic", "Armenian", "Bengali", "Bopomofo", "Canadian", "Cherokee", "Coptic", "Cyrillic"),
    *("Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati", "Gurmukhi", "Han", "Hangul"),
    *("Hebrew", "Hiragana", "Javanese", "Kannada", "Katakana", "Khmer", "Lao", "Latin"),
    *("Malayalam", "Mongolian", "Myanmar", "Oriya", "Sinhala", "Syriac", "Tamil", "Telugu"),
    *("Thaana", "Thai", "Tibetan", "Tifinagh", "Yi"),
)


class FilterConfig(Section):
    """Filters that drop pairs from the training set. null and false disable a filter."""

    damaged: bool = True
    """Drop pairs with damaged characters: U+FFFD, or UTF-8 that was decoded as Latin-1 or
    Windows-1252, such as Ã© for é."""
    max_length_ratio: Float | None = Field(9.0, gt=1)
    """Drop pairs in which one side is more than this many times as long as the other, both in
    characters and in UTF-8 bytes. Pairs whose longer side has fewer than 50 characters are kept."""
    dev_copies: bool = True
    """Drop near-copies of held-out dev pairs. A pair is a near-copy if both of its sides, or one
    side with at least 20 bytes of letters, have the same letters as a dev pair. Case, spaces,
    digits and punctuation are ignored. If more than 10% of the pairs are near-copies, all of them
    are kept."""
    duplicates: Literal["pair", "source", "target"] | None = None
    """Drop pairs that exactly repeat an earlier pair (pair), source (source) or target (target)."""
    identical: bool = False
    """Drop pairs with the same text on both sides."""
    min_characters: Int | None = Field(None, gt=0)
    """Drop pairs in which either side has fewer characters than this."""
    max_characters: Int | None = Field(None, gt=0)
    """Drop pairs in which either side has more characters than this."""
    min_words: Int | None = Field(None, gt=0)
    """Drop pairs in which either side has fewer words than this. For scripts without spaces, the
    number of words is an estimate."""
    max_words: Int | None = Field(None, gt=0)
    """Drop pairs in which either side has more words than this."""
    min_letter_share: Float | None = Field(None, gt=0, le=1)
    """Drop pairs in which either side has a smaller share of letters than this, such as 0.3. Spaces
    are not counted."""
    source_scripts: tuple[str, ...] = ()
    """Drop pairs in which fewer than half of the letters in the source are in these scripts, such
    as [Latin] or [Han, Hiragana, Katakana]. An empty list disables the filter."""
    target_scripts: tuple[str, ...] = ()
    """Same as `source_scripts`, but for the target."""
    max_repeated_characters: Int | None = Field(None, gt=0, le=1000)
    """Drop pairs in which a character occurs more than this many times in a row, such as 20."""
    max_repeated_words: Int | None = Field(None, gt=0)
    """Drop pairs in which a word, or a phrase of up to four words, occurs more than this many times
    in a row, such as 5."""
    different_numbers: bool = False
    """Drop pairs in which a number with several digits occurs on only one side, or in which each
    side has a number that the other side lacks. This also drops correct pairs, such as 30 for
    thirty."""
    different_urls: bool = False
    """Drop pairs whose two sides contain different URLs or email addresses."""

    @field_validator("source_scripts", "target_scripts")
    @classmethod
    def _check_scripts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in SCRIPTS:
                close = get_close_matches(name.capitalize(), SCRIPTS, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(SCRIPTS)}"
                raise ValueError(f"unknown script {name!r}; {hint}")
        return names

    @classmethod
    def none(cls) -> Self:
        """Return the section with all filters disabled, as in mtcli versions without filters."""
        return cls(damaged=False, max_length_ratio=None, dev_copies=False)

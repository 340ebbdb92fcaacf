"""Format numbers with their nouns for messages."""


def format_count(number: float, noun: str) -> str:
    """Return a number with its noun in the singular or plural: `1 pair`, `1,200 pairs`.

    The last word of `noun` must have a regular plural.
    """
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun if number == 1 else f'{noun}s'}"

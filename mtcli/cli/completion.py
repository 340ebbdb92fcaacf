"""Shell completion of option values. The callbacks must be fast: the shell waits for them."""

from collections.abc import Callable, Sequence


def complete(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a callback that suggests the names that start with the typed text."""

    def suggest(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return suggest


def complete_recipe(incomplete: str) -> list[tuple[str, str]]:
    """Suggest recipes that start with the typed text, each with its summary."""
    from mtcli.config.recipes import all_recipes

    return [(r.name, r.summary) for r in all_recipes() if r.name.startswith(incomplete)]

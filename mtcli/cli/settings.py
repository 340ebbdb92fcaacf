"""Settings of a run from the command line and from recipes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtcli.config.load import Setting


# Settings that are arguments or options of `mtcli train`, and their names in error messages.
_OPTIONS = {
    "data.train": "training corpus",
    "data.dev": "dev set",
    "data.source_lang": "--source-lang",
    "data.target_lang": "--target-lang",
}


def command_settings(
    data: Mapping[str, Any], minutes: float | None, overrides: list[str]
) -> "list[Setting]":
    """Return the settings from the command line; later settings override earlier ones."""
    from mtcli.config.load import CommandLineSetting, parse_override

    settings: list[Setting] = [
        CommandLineSetting(key, value, _OPTIONS[key])
        for key, value in data.items()
        if value is not None
    ]
    if minutes is not None:
        settings.append(CommandLineSetting("train.minutes", minutes, f"--minutes {minutes:g}"))
    return [*settings, *map(parse_override, overrides)]


def recipe_settings(path: Path | None, settings: "Sequence[Setting]") -> "list[Setting]":
    """Return a list with the setting that removes the recipe's dev set, or an empty list.

    The dev set is removed if the user specifies another training corpus. Raise `DataError` if the
    user specifies none and the recipe's corpus is missing.
    """
    from mtcli.config.recipes import recipe_at

    recipe = recipe_at(path) if path else None
    if recipe is None:
        return []
    keys = {key for key, _ in settings}
    if keys.isdisjoint({"data", "data.train"}):
        recipe.check_corpus(has_dev="data.dev" in keys)
        return []
    return [("data.dev", None)]  # --dev is a later setting and overrides this


def lacks_corpus(path: Path | None, settings: "Sequence[Setting]") -> bool:
    """Return whether the corpus comes from a recipe and at least one of its files is missing."""
    from mtcli.config.recipes import recipe_at

    recipe = recipe_at(path) if path else None
    is_named = any(key in ("data", "data.train", "data.dev") for key, _ in settings)
    return recipe is not None and not is_named and bool(recipe.missing_files())

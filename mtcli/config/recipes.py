"""Recipes: configurations that ship with mtcli and are selected by name.

The files are in the repository's `configs/` directory. `mtcli/configs` is a symbolic link to it,
so that the installed package contains the files.
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from mtcli.errors import ConfigError, DataError

_DIRECTORY = Path(__file__).parent.parent / "configs"
_LIST = "`mtcli config` lists the recipes"


@dataclass(frozen=True)
class Recipe:
    """Configuration file that ships with mtcli."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the recipe, for `--config`."""
        return self.path.stem

    @property
    def text(self) -> str:
        """Content of the file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """First line of the file, which describes the recipe in one sentence."""
        return self.text.partition("\n")[0].removeprefix("# ")

    def check_corpus(self, *, has_dev: bool) -> None:
        """Raise `DataError` if the recipe's corpus is not in the current directory.

        If the user has specified a dev set (`has_dev`), the recipe's dev files are not needed.
        """
        if missing := self.missing_files(has_dev=has_dev):
            raise DataError(
                f"recipe {self.name}: {missing[0]} is not in the current directory",
                hint=f"pass a corpus: mtcli train SOURCE TARGET --config {self.name} --out DIR",
            )

    def missing_files(self, *, has_dev: bool = False) -> list[Path]:
        """Return the files of the recipe's corpus that are not in the current directory."""
        from mtcli.config.load import load_config  # slow; not needed for shell completion

        data = load_config(self.path).data
        dev_files = () if has_dev or data.dev is None else data.dev.text_files
        return [file for file in (*data.train.text_files, *dev_files) if not file.exists()]


def all_recipes() -> list[Recipe]:
    """Return the recipes in alphabetical order."""
    recipes = map(Recipe, _DIRECTORY.glob("*.yaml"))
    return sorted(recipes, key=lambda recipe: recipe.name)


def find_recipe(name: str) -> Recipe:
    """Return the recipe `name`; raise `ConfigError` if it does not exist."""
    for recipe in all_recipes():
        if recipe.name == name:
            return recipe
    raise ConfigError(f"no such recipe: {name}", hint=_suggest(name))


def find_config(name: str) -> Path:
    """Return the path of a configuration file or, if `name` is not a file, of a recipe."""
    path = Path(name)
    if os.path.exists(path) and not path.is_dir():  # noqa: PTH110 (accepts pipes)
        return path
    if any(recipe.name == name for recipe in all_recipes()):
        return find_recipe(name).path
    if path.is_dir():
        raise ConfigError(
            f"{path} is a directory", hint=f"--config takes a YAML file or a recipe; {_LIST}"
        )
    raise ConfigError(f"no such file or recipe: {path}", hint=_suggest(path.stem))


def recipe_at(path: Path) -> Recipe | None:
    """Return the recipe whose file is `path`, or None."""
    same = [recipe for recipe in all_recipes() if recipe.path.resolve() == path.resolve()]
    return same[0] if same else None


def _suggest(name: str) -> str:
    close = get_close_matches(name, [recipe.name for recipe in all_recipes()], n=1)
    return f"did you mean {close[0]}? {_LIST}" if close else _LIST

"""Recipes: the configurations that come with mtcli and are found by name.

The files are in `configs/` of the repository; `mtcli/configs` is a link to it, so that they are
part of the installed package as well.
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from mtcli.config.load import load_config
from mtcli.errors import ConfigError, DataError

_DIRECTORY = Path(__file__).parent.parent / "configs"
_LIST = "`mtcli config` lists the recipes"


@dataclass(frozen=True)
class Recipe:
    """A configuration file that comes with mtcli."""

    path: Path

    @property
    def name(self) -> str:
        """The name for `--config`."""
        return self.path.stem

    @property
    def text(self) -> str:
        """The whole file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The first line, which describes the recipe in a sentence."""
        return self.text.partition("\n")[0].removeprefix("# ")

    def check_corpus(self, *, has_dev: bool) -> None:
        """Refuse to train on the corpus of the recipe if it is not in the current directory.

        With `has_dev`, the user names the dev files.
        """
        data = load_config(self.path).data
        for file in (*data.train, *(() if has_dev else data.dev or ())):
            if not file.exists():
                raise DataError(
                    f"recipe {self.name}: the corpus {file} is not in the current directory",
                    hint=f"name your own: mtcli train SOURCE TARGET --config {self.name} --out DIR",
                )


def all_recipes() -> list[Recipe]:
    """Return the recipes in alphabetical order."""
    found = map(Recipe, _DIRECTORY.glob("*.yaml"))
    return sorted(found, key=lambda recipe: recipe.name)


def find_recipe(name: str) -> Recipe:
    """Return the recipe `name`."""
    for recipe in all_recipes():
        if recipe.name == name:
            return recipe
    raise ConfigError(f"no such recipe: {name}", hint=_advice(name))


def find_config(name: str) -> Path:
    """Return the path of a configuration: a file that exists, or else a recipe."""
    path = Path(name)
    if os.path.exists(path) and not path.is_dir():  # noqa: PTH110 (a pipe will do as well)
        return path
    if any(recipe.name == name for recipe in all_recipes()):
        return find_recipe(name).path
    if path.is_dir():
        raise ConfigError(f"{path} is a directory", hint=f"--config takes a YAML file; {_LIST}")
    raise ConfigError(f"no such file or recipe: {path}", hint=_advice(path.stem))


def recipe_at(path: Path) -> Recipe | None:
    """Return the recipe whose file `path` is, if any."""
    same = [recipe for recipe in all_recipes() if recipe.path.resolve() == path.resolve()]
    return same[0] if same else None


def _advice(name: str) -> str:
    close = get_close_matches(name, [recipe.name for recipe in all_recipes()], n=1)
    return f"did you mean {close[0]}? {_LIST}" if close else _LIST

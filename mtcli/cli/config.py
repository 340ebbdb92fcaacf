"""`mtcli config`."""

from typing import Annotated

import typer

from mtcli.cli.base import app


@app.command(epilog="Example: mtcli config transformer-base > my.yaml")
def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Recipe to print; `reference` has every key with its default."
        ),
    ] = None,
) -> None:
    """List the recipes for `mtcli train --config NAME`, or print one."""
    from mtcli.config.recipes import all_recipes, find_recipe

    if name is not None:
        typer.echo(find_recipe(name).text, nl=False)
        return
    recipes = all_recipes()
    width = max((len(recipe.name) for recipe in recipes), default=0)
    for recipe in recipes:
        typer.echo(f"{recipe.name:<{width}}  {recipe.summary}")

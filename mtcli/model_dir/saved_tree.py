"""Read a model's config.yaml without validation, to avoid importing pydantic."""

from pathlib import Path

import yaml

from mtcli.config.yaml_errors import YAML_ERRORS, describe_yaml_error
from mtcli.data.formats.base import Languages
from mtcli.errors import CheckpointError
from mtcli.model_dir.layout import CONFIG, WEIGHTS
from mtcli.model_dir.safety import check_contained

_LANGUAGE_KEYS = ("source_lang", "target_lang")


class _LoaderWithoutAliases(yaml.SafeLoader):
    """YAML loader that rejects aliases, because a few of them can expand to billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node; raise an error if it is an alias."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


def read_saved_tree(path: Path) -> dict[str, object]:
    """Return the contents of a config.yaml without validating them."""
    if not path.is_file():
        if path.parent.is_dir():
            reason = f"it has no {path.name}"
        else:
            reason = "it is a file" if path.parent.exists() else "it does not exist"
        raise CheckpointError(
            f"{path.parent} is not a model directory: {reason}",
            hint="pass the directory that `mtcli train --out` wrote",
        )
    # Checking here is enough, because all code that uses a model directory reads config.yaml first.
    check_contained(path.parent)
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_LoaderWithoutAliases)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except YAML_ERRORS as error:
        raise _damaged(path, describe_yaml_error(error)) from error
    if not isinstance(tree, dict):
        raise _damaged(path, "it contains no settings")
    return tree


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: {problem}",
        hint=f"copy the file again; to retrain, remove {path.parent} or choose another --out",
    )


def saved_languages(directory: Path) -> Languages:
    """Return the language codes of the model in `directory`.

    Raise `CheckpointError` if `directory` is not a model directory.
    """
    data = read_saved_tree(directory / CONFIG).get("data")
    codes = [data.get(key) if isinstance(data, dict) else None for key in _LANGUAGE_KEYS]
    return Languages(*(code if isinstance(code, str) else None for code in codes))


def saved_format(directory: Path) -> int:
    """Return the format of the model directory; 0 if it is not a number."""
    value = read_saved_tree(directory / CONFIG).get("format")
    return value if isinstance(value, int) else 0


def check_has_weights(directory: Path) -> None:
    """Raise `CheckpointError` if the model in `directory` has no weights."""
    if not (directory / WEIGHTS).is_file():
        raise CheckpointError(
            f"{directory} has no {WEIGHTS}: training has not reached its first validation, or the "
            "directory was not copied completely",
            hint="run the same `mtcli train` command again to resume, or copy the model again",
        )

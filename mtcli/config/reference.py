"""Generate configs/reference.yaml from the config sections; a test checks that it is up to date."""

import textwrap
from collections.abc import Iterator

import yaml

from mtcli.config.base import Section
from mtcli.config.sections import ARCHITECTURES, Config, DataConfig

HEADER = """\
# Reference: all keys with their defaults and descriptions.
# Copy the keys that you want to change into your own file. All other keys keep their defaults.
# On the command line: --set section.key=value. Precedence: defaults < file < options and --set.
"""


def reference_yaml() -> str:
    """Return a complete configuration in YAML, with a description above each key."""
    # data.train is the only key without a default.
    config = Config(data=DataConfig.model_validate({"train": ("train.en", "train.de")}))
    parts = [HEADER]
    for name in Config.model_fields:
        section: Section = getattr(config, name)
        parts += ["\n", *_comment(type(section).__doc__ or "", ""), f"{name}:\n"]
        parts += _keys(section)
        if section is config.model:
            parts += [line for arch in _other_architectures(section) for line in _as_comment(arch)]
    return "".join(parts)


def _other_architectures(default: Section) -> Iterator[str]:
    """Yield the `model` section of each architecture except the default."""
    for arch, section in ARCHITECTURES.items():
        if section is not type(default):
            keys = "".join(_keys(section.model_validate({"arch": arch})))
            yield "".join(_comment(section.__doc__ or "", "")) + f"model:\n{keys}"


def _as_comment(text: str) -> list[str]:
    return ["\n", *(f"# {line}\n" for line in text.splitlines())]


def _keys(section: Section) -> Iterator[str]:
    """Yield the YAML lines of all keys, with a description above each key."""
    values = section.model_dump(mode="json")
    for key, field in type(section).model_fields.items():
        yield from _comment(field.description or "", "  ")
        # After a single scalar, PyYAML writes the end-of-document marker "...".
        value = yaml.safe_dump(values[key], default_flow_style=True).removesuffix("...\n")
        yield f"  {key}: {value.strip()}\n"


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}\n" for line in textwrap.wrap(text, width=96 - len(indent))]


if __name__ == "__main__":
    print(reference_yaml(), end="")

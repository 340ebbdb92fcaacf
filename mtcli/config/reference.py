"""Generate configs/reference.yaml from the sections; a test compares the two."""

import textwrap
from collections.abc import Iterator

import yaml

from mtcli.config.architectures import ARCHITECTURES
from mtcli.config.section import Section
from mtcli.config.sections import Config, DataConfig

HEADER = """\
# Reference: every key with its default and its meaning.
# Copy the keys that you want to change to your own file; all others keep their defaults.
# On the command line: --set section.key=value. Precedence: defaults < file < options and --set.
"""


def reference_yaml() -> str:
    """Return a complete configuration in YAML, each key with its help above it."""
    # The only required key stands for itself.
    config = Config(data=DataConfig.model_validate({"train": ("train.en", "train.de")}))
    parts = [HEADER]
    for name in Config.model_fields:
        section: Section = getattr(config, name)
        parts += ["\n", *_comment(type(section).__doc__ or "", ""), f"{name}:\n"]
        parts += _keys(section)
        if section is config.model:
            parts += [line for arch in _other_architectures(section) for line in _as_comment(arch)]
    return "".join(parts)


def _other_architectures(usual: Section) -> Iterator[str]:
    """The same section for each of the other architectures."""
    for arch, section in ARCHITECTURES.items():
        if section is not type(usual):
            keys = "".join(_keys(section.model_validate({"arch": arch})))
            yield "".join(_comment(section.__doc__ or "", "")) + f"model:\n{keys}"


def _as_comment(text: str) -> list[str]:
    return ["\n", *(f"# {line}\n" for line in text.splitlines())]


def _keys(section: Section) -> Iterator[str]:
    values = section.model_dump(mode="json")
    for key, field in type(section).model_fields.items():
        yield from _comment(field.description or "", "  ")
        # A lone scalar comes with YAML's document end mark, which a value does not want.
        value = yaml.safe_dump(values[key], default_flow_style=True).removesuffix("...\n")
        yield f"  {key}: {value.strip()}\n"


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}\n" for line in textwrap.wrap(text, width=96 - len(indent))]


if __name__ == "__main__":
    print(reference_yaml(), end="")

"""mtcli: two text files become a translator of your own."""

TYPE_CHECKING = False  # not from typing: Ctrl-C during that import would print a traceback
if TYPE_CHECKING:
    from mtcli.options import EngineOptions, SearchOptions
    from mtcli.translation import Translation, Translator

__version__ = "0.2.0"
__all__ = ["EngineOptions", "SearchOptions", "Translation", "Translator", "__version__"]

_PLACES = {
    "EngineOptions": "mtcli.options",
    "SearchOptions": "mtcli.options",
    "Translation": "mtcli.translation",
    "Translator": "mtcli.translation",
}


def __getattr__(name: str) -> object:
    """What programs use, imported when they do: `import mtcli` itself costs nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module 'mtcli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)

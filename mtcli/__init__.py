"""Neural machine translation: train, translate, evaluate."""

TYPE_CHECKING = False  # not from typing: Ctrl-C during that import would print a traceback
if TYPE_CHECKING:
    from mtcli.config.search import EngineOptions, SearchOptions
    from mtcli.evaluation.evaluate import Evaluation, evaluate_model
    from mtcli.translation.line_translator import Translation
    from mtcli.translation.scoring import PairScore
    from mtcli.translation.translator import Translator

__version__ = "0.3.0.dev0"
__all__ = [
    "EngineOptions",
    "Evaluation",
    "PairScore",
    "SearchOptions",
    "Translation",
    "Translator",
    "__version__",
    "evaluate_model",
]

_MODULES = {
    "EngineOptions": "mtcli.config.search",
    "Evaluation": "mtcli.evaluation.evaluate",
    "PairScore": "mtcli.translation.scoring",
    "SearchOptions": "mtcli.config.search",
    "Translation": "mtcli.translation.line_translator",
    "Translator": "mtcli.translation.translator",
    "evaluate_model": "mtcli.evaluation.evaluate",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import mtcli` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mtcli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)

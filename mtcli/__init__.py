"""Neural machine translation: train, translate, evaluate."""

TYPE_CHECKING = False  # do not import typing: Ctrl-C during the import would print a traceback
if TYPE_CHECKING:
    from mtcli.config.metrics import MetricOptions, TestOptions
    from mtcli.config.search import EngineOptions, SearchOptions
    from mtcli.evaluation.evaluate import (
        System,
        evaluate_model,
        evaluate_translations,
        score_systems,
    )
    from mtcli.evaluation.results import Evaluation, TestSet
    from mtcli.translation.line_translator import Translation
    from mtcli.translation.scoring import PairScore
    from mtcli.translation.translator import Translator

__version__ = "0.3.0.dev0"
__all__ = [
    "EngineOptions",
    "Evaluation",
    "MetricOptions",
    "PairScore",
    "SearchOptions",
    "System",
    "TestOptions",
    "TestSet",
    "Translation",
    "Translator",
    "__version__",
    "evaluate_model",
    "evaluate_translations",
    "score_systems",
]

_MODULES = {
    "EngineOptions": "mtcli.config.search",
    "Evaluation": "mtcli.evaluation.results",
    "MetricOptions": "mtcli.config.metrics",
    "PairScore": "mtcli.translation.scoring",
    "SearchOptions": "mtcli.config.search",
    "System": "mtcli.evaluation.evaluate",
    "TestOptions": "mtcli.config.metrics",
    "TestSet": "mtcli.evaluation.results",
    "Translation": "mtcli.translation.line_translator",
    "Translator": "mtcli.translation.translator",
    "evaluate_model": "mtcli.evaluation.evaluate",
    "evaluate_translations": "mtcli.evaluation.evaluate",
    "score_systems": "mtcli.evaluation.evaluate",
}


def __getattr__(name: str) -> object:
    """Return a public name, imported on first use so that `import mtcli` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mtcli' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)

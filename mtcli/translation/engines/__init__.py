"""Engines, and the function that selects one for a model (`open_engine`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.config.tags import ModelTags
from mtcli.errors import EngineError
from mtcli.model_dir.tags import model_tags
from mtcli.tokenizer import Tokenizers, load_tokenizers
from mtcli.translation.engines.base import Engine

if TYPE_CHECKING:
    from mtcli.models.base import TranslationModel


@dataclass(frozen=True)
class LoadedEngine:
    """An engine with the tokenizers and defaults of its model."""

    engine: Engine
    tokenizers: Tokenizers
    max_pieces: int  # longest source in training; longer lines are split
    search: SearchOptions  # default search options of the model
    open_model: Callable[[], "TranslationModel[Any]"] | None = None  # None: ensemble
    tags: ModelTags = ModelTags()  # target languages and tags that the model supports


def open_engine(model: Path, options: EngineOptions, ensemble: Sequence[Path] = ()) -> LoadedEngine:
    """Return an engine for `model`, or for an ensemble of `model` and other models.

    `engine="auto"` prefers CTranslate2 and uses torch for everything that CTranslate2 cannot run.
    """
    is_ct2_required = options.engine == "ctranslate2"
    if options.engine == "torch" or ensemble or options.device.startswith("mps"):
        if is_ct2_required:
            unsupported = "an ensemble" if ensemble else f"the device {options.device}"
            raise EngineError(f"CTranslate2 cannot use {unsupported}", hint="use --engine torch")
        return _open_torch(model, options, ensemble)
    from mtcli.export.directory import NotExportableError
    from mtcli.translation.engines.ct2 import open_ct2  # imports ctranslate2

    torch_options = replace(options, quantization=None, shortlist=None)
    open_torch = cache(lambda: _open_torch(model, torch_options, ensemble))
    fallback = None if is_ct2_required else lambda: open_torch().engine

    def open_model() -> "TranslationModel[Any]":
        loaded = open_torch()
        assert loaded.open_model is not None  # not an ensemble
        return loaded.open_model()

    try:
        engine, manifest = open_ct2(model, options, fallback)
    except NotExportableError:
        if is_ct2_required or options.shortlist or options.quantization not in (None, "float32"):
            raise
        return _open_torch(model, options, ensemble)
    tokenizers = load_tokenizers(model)
    tags = model_tags(model, tokenizers)
    return LoadedEngine(engine, tokenizers, manifest.max_pieces, manifest.search, open_model, tags)


def _open_torch(model: Path, options: EngineOptions, others: Sequence[Path]) -> LoadedEngine:
    import torch

    from mtcli.hardware import choose_device
    from mtcli.model_dir.weights import load_model
    from mtcli.models.ensemble import Ensemble
    from mtcli.translation.engines.pytorch import TorchEngine

    if options.quantization not in (None, "float32"):
        raise EngineError(
            f"the torch engine computes in float32, not in {options.quantization}",
            hint="omit --quantization, or use --engine ctranslate2",
        )
    if options.shortlist:
        raise EngineError("the torch engine does not support shortlists", hint="omit --shortlist")
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    first, *rest = members = [load_model(path, device) for path in (model, *others)]
    for path, member in zip(others, rest, strict=True):
        if member.tokenizers.files() != first.tokenizers.files():
            raise EngineError(
                f"{path} has a different vocabulary than {model}",
                hint="use models that were trained with the same tokenizer",
            )
    network = Ensemble([member.model for member in members]).eval() if rest else first.model
    engine = TorchEngine(network, first.tokenizers, seed=options.seed)
    max_pieces = min(member.config.data.max_length for member in members)
    search = SearchOptions(**first.config.search.model_dump())
    open_model = None if rest else lambda: first.model
    tags = model_tags(model, first.tokenizers)
    return LoadedEngine(engine, first.tokenizers, max_pieces, search, open_model, tags)

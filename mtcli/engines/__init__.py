"""The engines there are; the only place that lists them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtcli.engines.base import Engine, Found, Scored, Source
from mtcli.errors import EngineError
from mtcli.options import EngineOptions, SearchOptions
from mtcli.tokenizer import Tokenizers, load_tokenizers

__all__ = ["Engine", "Found", "Opened", "Scored", "Source", "open_engine"]


@dataclass(frozen=True)
class Opened:
    """A model directory, ready to translate."""

    engine: Engine
    tokenizers: Tokenizers
    max_pieces: int  # the longest source the model was trained for
    search: SearchOptions  # the model's own


def open_engine(model: Path, options: EngineOptions, ensemble: Sequence[Path] = ()) -> Opened:
    """The engine that suits the model and `options`; with `ensemble`, more models that vote."""
    wants_ct2 = options.engine == "ctranslate2"
    if options.engine == "torch" or ensemble or options.device.startswith("mps"):
        if wants_ct2:
            what = "an ensemble" if ensemble else f"the device {options.device}"
            raise EngineError(f"CTranslate2 cannot use {what}", hint="use --engine torch")
        return _open_torch(model, options, ensemble)
    from mtcli.engines.ct2 import open_ct2  # here, so that the torch engine does not pay for it
    from mtcli.export.directory import NotExportableError

    def understudy() -> Engine:
        plain = replace(options, quantization=None)
        return _open_torch(model, plain, ensemble).engine

    try:
        engine, manifest = open_ct2(model, options, None if wants_ct2 else understudy)
    except NotExportableError:
        if wants_ct2 or options.shortlist or options.quantization not in (None, "float32"):
            raise
        return _open_torch(model, options, ensemble)
    return Opened(engine, load_tokenizers(model), manifest.max_pieces, manifest.search)


def _open_torch(model: Path, options: EngineOptions, others: Sequence[Path]) -> Opened:
    import torch

    from mtcli.checkpoint.weights import load_model
    from mtcli.engines.pytorch import TorchEngine, choose_device
    from mtcli.models.ensemble import Ensemble

    if options.quantization not in (None, "float32"):
        raise EngineError(
            f"the torch engine computes in float32, not in {options.quantization}",
            hint="leave out --quantization, or use --engine ctranslate2",
        )
    if options.shortlist:
        raise EngineError("the torch engine has no shortlist", hint="leave out --shortlist")
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    first, *rest = members = [load_model(path, device) for path in (model, *others)]
    for path, member in zip(others, rest, strict=True):
        if member.tokenizers.files() != first.tokenizers.files():
            raise EngineError(
                f"{path} has another vocabulary than {model}",
                hint="models of an ensemble are trained with the same tokenizer",
            )
    network = Ensemble([member.model for member in members]).eval() if rest else first.model
    engine = TorchEngine(network, first.tokenizers, seed=options.seed)
    max_pieces = min(member.config.data.max_length for member in members)
    search = SearchOptions(**first.config.search.model_dump())
    return Opened(engine, first.tokenizers, max_pieces, search)

"""CTranslate2 engine: fast, and independent of torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2

from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.errors import EngineError
from mtcli.export.directory import VOCABULARY_MAP, Export, open_export
from mtcli.hardware import usable_cores
from mtcli.model_dir.manifest import Manifest
from mtcli.translation.engines.base import (
    Engine,
    NBest,
    PiecePair,
    ScoredPieces,
    Source,
    TokenScores,
)

_BOS, _EOS = "<s>", "</s>"
_GPU_BATCH_TOKENS = 8_192


class Ct2Engine(Engine):
    """Beam search and sampling with CTranslate2, which runs each batch in a separate thread."""

    name = "ctranslate2"
    model_class = ctranslate2.Translator
    batch_tokens = 384  # small batches fit in the CPU cache and have fewer shortlist candidates
    n_positions: int

    def __init__(self, export: Export, options: EngineOptions, *, device: str) -> None:
        manifest = export.manifest
        self.n_positions = manifest.n_positions
        self.target_size = manifest.target_size
        files = {**export.files}
        self.n_bytes = sum(map(len, files.values()))
        shortlist = _select_shortlist(export, options)
        self.uses_shortlist = shortlist is not None
        if shortlist is not None:
            files[VOCABULARY_MAP] = shortlist
        self.n_parallel = options.threads or usable_cores()
        name, _, index = device.partition(":")
        if name == "cuda":
            self.n_parallel, self.batch_tokens = 1, _GPU_BATCH_TOKENS
        if options.seed is not None:
            ctranslate2.set_random_seed(options.seed)
            self.n_parallel = 1  # samples are reproducible only if batches run sequentially
        with _convert_errors():
            self._model = self.model_class(
                "mtcli",
                device=name,
                device_index=int(index or 0),
                compute_type=choose_quantization(options.quantization, name),
                inter_threads=self.n_parallel,
                intra_threads=1,  # several threads per batch would mostly wait for each other
                max_queued_batches=-1,
                files=files,
            )

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> NBest:
        """Return the n-best list of each source, with at most `limit` pieces per target."""
        return self.submit(sources, options, limit)()

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], NBest]:
        """Start a search in a CTranslate2 thread; return a function that waits for its result."""
        prefixes = [list(source.prefix) for source in sources]
        with _convert_errors():
            pending = self._model.translate_batch(
                [list(source.pieces) for source in sources],
                prefixes if any(prefixes) else None,
                asynchronous=True,
                num_hypotheses=options.n_best,
                length_penalty=options.length_penalty,
                repetition_penalty=options.repetition_penalty,
                no_repeat_ngram_size=options.no_repeat_ngram,
                max_input_length=0,  # never truncate a source: long lines have been split
                max_decoding_length=limit,
                min_decoding_length=0,  # allow empty translations
                use_vmap=self.uses_shortlist and not options.sampling,
                return_end_token=True,
                return_scores=options.with_scores,
                **self._decoding_options(options),
            )
        return partial(self._collect, pending, sources, options)

    def score(self, pairs: list[PiecePair]) -> TokenScores:
        """Return the log-probabilities of the pieces and of EOS for each translation."""
        return self.submit_scoring(pairs)()

    def submit_scoring(self, pairs: list[PiecePair]) -> Callable[[], TokenScores]:
        """Start scoring in a CTranslate2 thread; return a function that waits for the result."""
        with _convert_errors():
            pending = self._model.score_batch(
                [list(source.pieces) for source, _ in pairs],
                [list(pieces) for _, pieces in pairs],
                max_input_length=0,  # never truncate
                asynchronous=True,
            )
        return partial(_collect_scores, pending, pairs)

    def _decoding_options(self, options: SearchOptions) -> dict[str, Any]:
        """Return CTranslate2's arguments for beam search or sampling."""
        if options.sampling is None:
            return {"beam_size": options.beam_size}
        return {
            "beam_size": 1,
            "sampling_topk": min(options.sampling.top_k, self.target_size),
            "sampling_topp": options.sampling.top_p,
            "sampling_temperature": options.sampling.temperature,
        }

    def _collect(self, pending: list[Any], sources: list[Source], options: SearchOptions) -> NBest:
        with _convert_errors():
            results = [future.result() for future in pending]
            n_best = [_to_scored_pieces(result.hypotheses, result.scores) for result in results]
            return self._add_attention(sources, n_best) if options.with_alignment else n_best

    def _add_attention(self, sources: list[Source], n_best: NBest) -> NBest:
        """Return `n_best` with attention, computed by forced decoding of each hypothesis.

        Beam search can also return attention, but CTranslate2 4.8 then mixes up the first attention
        rows of the sentences in a batch.
        """
        pairs = [(s, h) for s, best in zip(sources, n_best, strict=True) for h in best if h.pieces]
        results = self._model.translate_batch(
            [list(source.pieces) for source, _ in pairs],
            [h.pieces for _, h in pairs],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max((len(h.pieces) for _, h in pairs), default=1),
            return_attention=True,
        )
        attention = iter(result.attention[0] for result in results)
        return [
            [
                replace(h, attention=next(attention)[: len(h.pieces)] if h.pieces else [])
                for h in best
            ]
            for best in n_best
        ]


class Ct2Generator(Ct2Engine):
    """Search with a decoder-only language model, which continues the source with its translation.

    For these models, CTranslate2 does not support attention weights or target prefixes. The
    fallback engine, if there is one, handles requests for them.
    """

    model_class = ctranslate2.Generator

    def __init__(
        self,
        export: Export,
        options: EngineOptions,
        *,
        device: str,
        fallback: Callable[[], Engine] | None,
    ) -> None:
        super().__init__(export, options, device=device)
        self._load_fallback = cache(fallback) if fallback else None

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], NBest]:
        """Start a search in a CTranslate2 thread; return a function that waits for its result."""
        if options.with_alignment or any(source.prefix for source in sources):
            return self._fallback_engine().submit(sources, options, limit)
        # Group prompts by length: CTranslate2 processes prompt positions in parallel only if all
        # prompts of a batch have the same length.
        order = sorted(range(len(sources)), key=lambda i: len(sources[i].pieces))
        pending: dict[int, Any] = {}
        for _, same_length in groupby(order, key=lambda i: len(sources[i].pieces)):
            group = list(same_length)
            with _convert_errors():
                futures = self._model.generate_batch(
                    [[*sources[i].pieces, _EOS, _BOS] for i in group],
                    asynchronous=True,
                    num_hypotheses=options.n_best,
                    length_penalty=options.length_penalty,
                    repetition_penalty=options.repetition_penalty,
                    no_repeat_ngram_size=options.no_repeat_ngram,
                    max_length=limit,
                    min_length=0,
                    include_prompt_in_result=False,
                    return_end_token=True,
                    return_scores=options.with_scores,
                    **self._decoding_options(options),
                )
            pending |= zip(group, futures, strict=True)
        return partial(_collect_generated, [pending[i] for i in range(len(sources))])

    def submit_scoring(self, pairs: list[PiecePair]) -> Callable[[], TokenScores]:
        """Start scoring in a CTranslate2 thread; return a function that waits for the result."""
        with _convert_errors():
            pending = self._model.score_batch(
                [[*source.pieces, _EOS, _BOS, *pieces, _EOS] for source, pieces in pairs],
                max_input_length=0,
                asynchronous=True,
            )
        return partial(_collect_scores, pending, pairs)

    def _fallback_engine(self) -> Engine:
        if self._load_fallback is None:
            raise EngineError(
                "CTranslate2 supports neither alignments nor prefixes for language models",
                hint="use --engine torch or --engine auto",
            )
        return self._load_fallback()


def open_ct2(
    model: Path, options: EngineOptions, fallback: Callable[[], Engine] | None = None
) -> tuple[Ct2Engine, Manifest]:
    """Open a model directory, export it if necessary, and return the engine and the manifest."""
    device = _choose_device(options.device)
    quantization = choose_quantization(options.quantization, device)
    export = open_export(model, quantization, shortlist=options.shortlist)
    if export.manifest.is_language_model:
        return Ct2Generator(export, options, device=device, fallback=fallback), export.manifest
    return Ct2Engine(export, options, device=device), export.manifest


def _select_shortlist(export: Export, options: EngineOptions) -> bytes | None:
    """Return the vocabulary map, or None if the shortlist is disabled."""
    if not export.manifest.uses_shortlist(options.shortlist):
        return None
    if export.manifest.is_language_model:
        raise EngineError(
            "CTranslate2 does not support shortlists for language models", hint="omit --shortlist"
        )
    if export.vocabulary_map is None:
        raise EngineError(
            "the model has no vocabulary shortlist",
            hint="omit --shortlist; only `mtcli train` creates one, at the end of training",
        )
    return export.vocabulary_map


def choose_quantization(wanted: str | None, device: str) -> str:
    """Return the compute type: `wanted`, or the default for the device if it is None.

    Raise `EngineError` if the device does not support `wanted`.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    supported = ctranslate2.get_supported_compute_types(kind)
    if wanted is None:
        return "int8" if kind == "cpu" or "float16" not in supported else "float16"
    if wanted not in supported:
        names = ", ".join(sorted(name for name in supported if "_" not in name))
        raise EngineError(
            f"CTranslate2 cannot compute in {wanted} on the device {kind}",
            hint=f"choose --quantization from {names}",
        )
    return wanted


def _choose_device(name: str) -> str:
    if name == "auto":
        return "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    kind, _, index = name.partition(":")
    n_devices = 1 if kind == "cpu" else ctranslate2.get_cuda_device_count() if kind == "cuda" else 0
    if not (index or "0").isdigit() or int(index or 0) >= n_devices:
        raise EngineError(
            f"CTranslate2 cannot use {name!r} on this machine",
            hint="use --device auto, cpu, cuda or cuda:N, or try --engine torch",
        )
    return name


def _collect_generated(pending: list[Any]) -> NBest:
    with _convert_errors():
        results = [future.result() for future in pending]
    return [_to_scored_pieces(result.sequences, result.scores) for result in results]


def _collect_scores(pending: list[Any], pairs: list[PiecePair]) -> TokenScores:
    """Return the scores of the target tokens.

    For a language model, the scores of the source tokens come first and are dropped.
    """
    with _convert_errors():
        results = [future.result() for future in pending]
    return [
        list(result.log_probs[-len(pieces) - 1 :])
        for result, (_, pieces) in zip(results, pairs, strict=True)
    ]


def _to_scored_pieces(hypotheses: list[list[str]], scores: list[float]) -> list[ScoredPieces]:
    return [
        ScoredPieces(
            pieces=pieces[:-1] if pieces[-1:] == [_EOS] else pieces,
            score=score,
            is_truncated=pieces[-1:] != [_EOS],
        )
        for pieces, score in zip(hypotheses, scores or [0.0] * len(hypotheses), strict=True)
    ]


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Run the block with CTranslate2's exceptions converted to `EngineError`."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"CTranslate2 failed: {error}", hint="use --engine torch") from error

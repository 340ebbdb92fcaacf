"""Translating with CTranslate2: fast, and without torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2

from mtcli.engines.base import Engine, Found, Scored, Source
from mtcli.errors import EngineError
from mtcli.export.directory import VOCABULARY_MAP, Export, open_export
from mtcli.export.manifest import Manifest
from mtcli.hardware import usable_cores
from mtcli.options import EngineOptions, SearchOptions

_BEGIN, _END = "<s>", "</s>"
_GPU_BATCH_TOKENS = 8_192


class Ct2Engine(Engine):
    """Searches with CTranslate2, batch beside batch, one thread each."""

    runs = ctranslate2.Translator
    batch_tokens = 384  # small ones stay in the cache, and have fewer candidates in a shortlist
    n_positions: int

    def __init__(self, export: Export, options: EngineOptions, *, device: str) -> None:
        manifest = export.manifest
        self.n_positions = manifest.n_positions
        self.target_size = manifest.target_size
        files = {**export.files}
        shortlist = _chosen_shortlist(export, options)
        self.uses_shortlist = shortlist is not None
        if shortlist is not None:
            files[VOCABULARY_MAP] = shortlist
        self.n_parallel = options.threads or usable_cores()
        name, _, index = device.partition(":")
        if name == "cuda":
            self.n_parallel, self.batch_tokens = 1, _GPU_BATCH_TOKENS
        if options.seed is not None:
            ctranslate2.set_random_seed(options.seed)
            self.n_parallel = 1  # samples are the same again only if one batch follows the other
        with _errors_as_ours():
            self._model = self.runs(
                "mtcli",
                device=name,
                device_index=int(index or 0),
                compute_type=choose_quantization(options.quantization, name),
                inter_threads=self.n_parallel,
                intra_threads=1,  # threads that share a batch wait for each other mostly
                max_queued_batches=-1,
                files=files,
            )

    def search(self, sources: list[Source], options: SearchOptions, limit: int) -> Found:
        """For each source its n_best targets of at most `limit` pieces, best first."""
        return self.submit(sources, options, limit)()

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], Found]:
        """Ask for a search; a thread of CTranslate2 does it in the meantime."""
        prefixes = [list(source.prefix) for source in sources]
        with _errors_as_ours():
            pending = self._model.translate_batch(
                [list(source.pieces) for source in sources],
                prefixes if any(prefixes) else None,
                asynchronous=True,
                num_hypotheses=options.n_best,
                length_penalty=options.length_penalty,
                repetition_penalty=options.repetition_penalty,
                no_repeat_ngram_size=options.no_repeat_ngram,
                max_input_length=0,  # never cut a source; what is too long is split before
                max_decoding_length=limit,
                min_decoding_length=0,  # an empty translation is one like others
                use_vmap=self.uses_shortlist and not options.sampling,
                return_end_token=True,
                return_scores=options.with_scores,
                **self._ways(options),
            )
        return partial(self._collect, pending, sources, options)

    def _ways(self, options: SearchOptions) -> dict[str, Any]:
        """Beam search or sampling, in CTranslate2's words."""
        if options.sampling is None:
            return {"beam_size": options.beam_size}
        return {
            "beam_size": 1,
            "sampling_topk": min(options.sampling.top_k, self.target_size),
            "sampling_topp": options.sampling.top_p,
            "sampling_temperature": options.sampling.temperature,
        }

    def _collect(self, pending: list[Any], sources: list[Source], options: SearchOptions) -> Found:
        with _errors_as_ours():
            results = [future.result() for future in pending]
            found = [_scored(result.hypotheses, result.scores) for result in results]
            return self._with_attention(sources, found) if options.with_alignment else found

    def _with_attention(self, sources: list[Source], found: Found) -> Found:
        """What each translation looked at, seen by following it once more.

        Beam search itself would tell, but mixes up the first rows of the sentences in a batch
        (CTranslate2 4.8).
        """
        flat = [(s, h) for s, best in zip(sources, found, strict=True) for h in best if h.pieces]
        results = self._model.translate_batch(
            [list(source.pieces) for source, _ in flat],
            [h.pieces for _, h in flat],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max((len(h.pieces) for _, h in flat), default=1),
            return_attention=True,
        )
        seen = iter(result.attention[0] for result in results)
        return [
            [replace(h, attention=next(seen)[: len(h.pieces)] if h.pieces else []) for h in best]
            for best in found
        ]


class Ct2Generator(Ct2Engine):
    """Searches in a language model that reads the source, and goes on with its translation.

    What CTranslate2 cannot do with such a model, an understudy does, if there is one.
    """

    runs = ctranslate2.Generator

    def __init__(
        self,
        export: Export,
        options: EngineOptions,
        *,
        device: str,
        understudy: Callable[[], Engine] | None,
    ) -> None:
        super().__init__(export, options, device=device)
        self._understudy = cache(understudy) if understudy else None

    def submit(
        self, sources: list[Source], options: SearchOptions, limit: int
    ) -> Callable[[], Found]:
        """Ask for a search; a thread of CTranslate2 does it in the meantime."""
        if options.with_alignment or any(source.prefix for source in sources):
            return self._instead().submit(sources, options, limit)
        # Only sources of the same length are read at once, up to where the target begins.
        order = sorted(range(len(sources)), key=lambda i: len(sources[i].pieces))
        pending: dict[int, Any] = {}
        for _, same in groupby(order, key=lambda i: len(sources[i].pieces)):
            group = list(same)
            with _errors_as_ours():
                futures = self._model.generate_batch(
                    [[*sources[i].pieces, _END, _BEGIN] for i in group],
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
                    **self._ways(options),
                )
            pending |= zip(group, futures, strict=True)
        return partial(_collected, [pending[i] for i in range(len(sources))])

    def _instead(self) -> Engine:
        if self._understudy is None:
            raise EngineError(
                "CTranslate2 shows no attention of a language model, and forces no prefix on it",
                hint="use --engine torch, or let mtcli choose with --engine auto",
            )
        return self._understudy()


def open_ct2(
    model: Path, options: EngineOptions, understudy: Callable[[], Engine] | None = None
) -> tuple[Ct2Engine, Manifest]:
    """The engine of a model directory, and what its export knows; it is made if need be."""
    device = _choose_device(options.device)
    quantization = choose_quantization(options.quantization, device)
    export = open_export(model, quantization, shortlist=options.shortlist)
    if export.manifest.is_language_model:
        return Ct2Generator(export, options, device=device, understudy=understudy), export.manifest
    return Ct2Engine(export, options, device=device), export.manifest


def _chosen_shortlist(export: Export, options: EngineOptions) -> bytes | None:
    """Return the vocabulary map if it is to be used, or raise `EngineError` if there is none."""
    if not export.manifest.uses_shortlist(options.shortlist):
        return None
    if export.manifest.is_language_model:
        raise EngineError(
            "CTranslate2's language models have no vocabulary shortlist",
            hint="leave out --shortlist",
        )
    if export.shortlist is None:
        raise EngineError(
            "the model has no vocabulary shortlist",
            hint="only `mtcli train` makes one, when training is over; leave out --shortlist",
        )
    return export.shortlist


def choose_quantization(wanted: str | None, device: str) -> str:
    """The type that weights are stored and multiplied in."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    supported = ctranslate2.get_supported_compute_types(kind)
    if wanted is None:
        return "int8" if kind == "cpu" or "float16" not in supported else "float16"
    if wanted not in supported:
        known = ", ".join(sorted(name for name in supported if "_" not in name))
        raise EngineError(
            f"CTranslate2 cannot compute in {wanted} on this {kind}",
            hint=f"it can in {known}: see --quantization",
        )
    return wanted


def _choose_device(name: str) -> str:
    if name == "auto":
        return "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    kind, _, index = name.partition(":")
    n_devices = 1 if kind == "cpu" else ctranslate2.get_cuda_device_count() if kind == "cuda" else 0
    if not (index or "0").isdigit() or int(index or 0) >= n_devices:
        raise EngineError(
            f"CTranslate2 cannot use {name!r} here",
            hint="use auto, cpu, cuda or cuda:N; --engine torch may know others",
        )
    return name


def _collected(pending: list[Any]) -> Found:
    with _errors_as_ours():
        results = [future.result() for future in pending]
    return [_scored(result.sequences, result.scores) for result in results]


def _scored(hypotheses: list[list[str]], scores: list[float]) -> list[Scored]:
    return [
        Scored(
            pieces=pieces[:-1] if pieces[-1:] == [_END] else pieces,
            score=score,
            is_cut=pieces[-1:] != [_END],
        )
        for pieces, score in zip(hypotheses, scores or [0.0] * len(hypotheses), strict=True)
    ]


@contextmanager
def _errors_as_ours() -> Iterator[None]:
    """What CTranslate2 cannot do or load is told as a message."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"CTranslate2 says: {error}", hint="use --engine torch") from error

"""Apply the configured filters to the training pairs, and report the dropped pairs."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mtcli.config.filters import FilterConfig
from mtcli.counts import format_count
from mtcli.data.corpus import Corpus, Notify
from mtcli.data.duplicates import DuplicateFinder
from mtcli.data.filters import RULES, Mask, PairBlock
from mtcli.data.held_out import no_training_pairs, shared_rows
from mtcli.data.near_copies import NearCopyIndex
from mtcli.data.prefetch import map_in_threads
from mtcli.errors import DataError
from mtcli.hardware import usable_cores
from mtcli.reporting.messages import example_text

MAX_COPY_SHARE = 0.1  # if near-copies exceed this share of the training pairs, keep them
_MANY_DROPPED = 0.5  # share of dropped pairs above which a warning is printed
_MAX_OVERLAP = 0.05  # near-copies per dev pair above which a warning is printed

Pair = tuple[str, str]
Rows = NDArray[np.int64]  # row numbers of pairs, in order

_NO_ROWS: Rows = np.zeros(0, np.int64)
_DUPLICATES = {
    "pair": "the source and target of an earlier pair",
    "source": "the source of an earlier pair",
    "target": "the target of an earlier pair",
}


@dataclass
class Dropped:
    """Pairs dropped by one filter: their number, and the first one as an example."""

    name: str  # key in the section `filters`
    reason: str
    disabled: str  # value that disables the filter
    n_pairs: int = 0
    example: Pair | None = None

    def add(self, block: PairBlock, found: Mask) -> None:
        """Count the pairs marked in `found`, and keep the first one as an example."""
        n_found = int(found.sum())
        if n_found and self.example is None:
            row = int(found.argmax())
            self.example = block.sources[row], block.targets[row]
        self.n_pairs += n_found

    def with_rows(self, rows: NDArray[np.int64], corpus: Corpus) -> Self:
        """Return a copy whose count and example describe the given rows of a corpus."""
        return replace(self, n_pairs=len(rows), example=_pair(corpus, rows))

    def notice(self, n_total: int) -> str:
        """Return a message with the number of pairs and an example."""
        text = f"dropped {self.n_pairs:,} of {format_count(n_total, 'pair')} with {self.reason}"
        return text + example_text(self.example)


class PairFilter:
    """Filters that judge each pair individually, with the number of pairs that each filter dropped.

    If several filters match a pair, only the first one counts it.
    """

    def __init__(self, filters: FilterConfig) -> None:
        thresholds = ((rule, getattr(filters, rule.name)) for rule in RULES.values())
        self._rules = [(rule, threshold) for rule, threshold in thresholds if threshold]
        self.dropped = {
            rule.name: Dropped(rule.name, rule.reason(threshold), _disabled(threshold))
            for rule, threshold in self._rules
        }

    def find(self, block: PairBlock, ignored: Mask | None = None) -> Mask:
        """Return a mask of the pairs to drop, and count them; skip the pairs in `ignored`."""
        is_remaining = np.ones(len(block), np.bool_) if ignored is None else ~ignored
        mask = np.zeros(len(block), np.bool_)
        for rule, threshold in self._rules:
            found = rule.find(block, threshold) & is_remaining
            self.dropped[rule.name].add(block, found)
            mask |= found
            is_remaining &= ~found
        return mask


def _disabled(threshold: Any) -> str:
    match threshold:
        case bool():
            return "false"
        case tuple():
            return "[]"
        case _:
            return "null"


def drop_unwanted(
    corpus: Corpus,
    dev: Corpus,
    filters: FilterConfig,
    notify: Notify,
    *,
    is_held_out: bool,
    directory: Path | None = None,
) -> Corpus:
    """Return the training pairs that the filters keep; report the pairs that each filter drops.

    If `dev` was held out from the corpus, the dev pairs and all other pairs with the source of a
    dev pair are also dropped. Near-copies of dev pairs are dropped, too, unless they are more than
    10% of all pairs. If the user chose the dev set, near-copies are only reported. Temporary files
    are written to `directory`.
    """
    n_read = len(corpus)
    if is_held_out and not filters.dev_copies:
        corpus = corpus.exclude(shared_rows(corpus, dev.source))
    scan = _scan(corpus, filters, _matcher(corpus, dev, filters, is_held_out), directory)
    n_pairs = len(corpus) - len(scan.shared)
    if not n_pairs:
        raise no_training_pairs()
    if is_held_out and n_read - n_pairs > len(dev):
        n_shared = n_read - n_pairs - len(dev)
        read = format_count(n_read, "pair")
        notify(f"dropped {n_shared:,} of {read} with the source of a dev pair")
    are_copies_dropped = is_held_out and len(scan.copies) <= MAX_COPY_SHARE * n_pairs
    copies = scan.copies if are_copies_dropped else _NO_ROWS
    if len(scan.copies) and not are_copies_dropped:
        notify(_kept_copies(scan.copies, corpus, len(dev), is_held_out))
    reason = "the same letters as a dev pair (filters.dev_copies=true)"
    found = Dropped("dev_copies", reason, "false").with_rows(copies, corpus)
    dropped = [*scan.dropped, found]
    rows = [scan.shared, scan.rows, copies]
    if scan.duplicates and filters.duplicates:
        reason = f"{_DUPLICATES[filters.duplicates]} (filters.duplicates={filters.duplicates})"
        rows.append(scan.duplicates.find(without=copies))
        dropped.append(Dropped("duplicates", reason, "null").with_rows(rows[-1], corpus))
    _report(dropped, n_pairs, notify)
    all_rows = np.sort(np.concatenate(rows))
    return corpus.exclude(all_rows) if len(all_rows) else corpus


def drop_by_filters(
    corpus: Corpus, filters: FilterConfig, near_copies: NearCopyIndex | None
) -> Corpus:
    """Return an in-memory corpus without the pairs that match a filter or `near_copies`.

    The filter `duplicates`, which compares a pair with earlier pairs, is not applied.
    """
    block = PairBlock(corpus.source, corpus.target)
    mask = PairFilter(filters).find(block)
    if near_copies:
        mask |= near_copies.find(block)
    return corpus.exclude(np.flatnonzero(mask)) if mask.any() else corpus


def near_copy_index(corpus: Corpus, dev: Corpus, filters: FilterConfig) -> NearCopyIndex | None:
    """Return an index of held-out dev pairs, or None if near-copies in `corpus` are kept."""
    matcher = _matcher(corpus, dev, filters, is_held_out=True)
    scan = _scan(corpus, filters, matcher)
    n_pairs = len(corpus) - len(scan.shared)
    are_kept = len(scan.copies) > MAX_COPY_SHARE * n_pairs
    return None if matcher is None or are_kept else matcher.index


@dataclass(frozen=True)
class _DevMatcher:
    """Finds pairs with the source of a held-out dev pair, and other near-copies of dev pairs."""

    index: NearCopyIndex
    sources: Set[str]  # sources of held-out pairs
    has_directions: bool  # if True, the reverse of a held-out pair is also excluded

    def find(self, block: PairBlock) -> tuple[Mask, Mask]:
        """Return two masks: pairs with the source of a held-out pair, and other near-copies."""
        shared, copies = np.zeros(len(block), np.bool_), np.zeros(len(block), np.bool_)
        for row in self.index.candidates(block):
            source, target = block.sources[row], block.targets[row]
            if source in self.sources or (self.has_directions and target in self.sources):
                shared[row] = True
            else:
                copies[row] = self.index.has_copy_of(source, target)
        return shared, copies


def _matcher(
    corpus: Corpus, dev: Corpus, filters: FilterConfig, is_held_out: bool
) -> _DevMatcher | None:
    if not filters.dev_copies:
        return None
    index = NearCopyIndex(zip(dev.source, dev.target, strict=True))
    sources = frozenset(dev.source) if is_held_out else frozenset[str]()
    return _DevMatcher(index, sources, corpus.has_directions)


@dataclass(frozen=True)
class _Scan:
    """Pairs that the filters find in a corpus. `shared`, `rows` and `copies` do not overlap."""

    shared: Rows  # held-out dev pairs, and all other pairs with the source of a dev pair
    rows: Rows  # found by filters that judge each pair individually
    dropped: Sequence[Dropped]
    copies: Rows  # near-copies of dev pairs
    duplicates: DuplicateFinder | None  # compares pairs that are neither in `shared` nor in `rows`


def _scan(
    corpus: Corpus,
    filters: FilterConfig,
    matcher: _DevMatcher | None,
    directory: Path | None = None,
) -> _Scan:
    """Return the result of applying all filters in one pass over the corpus."""
    pair_filter = PairFilter(filters)
    duplicates = DuplicateFinder(directory) if filters.duplicates else None
    found: dict[str, list[Rows]] = {"shared": [_NO_ROWS], "rows": [_NO_ROWS], "copies": [_NO_ROWS]}
    start = 0
    is_needed = pair_filter.dropped or matcher or duplicates
    blocks = (PairBlock(*sides) for sides in (corpus.lazy_blocks() if is_needed else ()))

    def match(block: PairBlock) -> tuple[PairBlock, tuple[Mask, Mask]]:
        nothing = np.zeros(len(block), np.bool_)
        return block, (matcher.find(block) if matcher else (nothing, nothing))

    for block, (shared, copies) in map_in_threads(match, blocks, usable_cores()):
        mask = pair_filter.find(block, ignored=shared)
        masks = {"shared": shared, "rows": mask, "copies": copies & ~mask}
        for name, one in masks.items():
            found[name].append(start + np.flatnonzero(one))
        if duplicates:
            kept = np.flatnonzero(~mask & ~shared)
            duplicates.add(_texts(block, kept, filters.duplicates), start + kept)
        start += len(block)
    rows = {name: np.concatenate(parts) for name, parts in found.items()}
    return _Scan(**rows, dropped=tuple(pair_filter.dropped.values()), duplicates=duplicates)


def _texts(block: PairBlock, rows: Rows, side: str | None) -> list[str]:
    """Return the texts to compare: `side` of each row, or both sides joined."""
    sources, targets = list(block.sources), list(block.targets)
    match side:
        case "source":
            return [sources[row] for row in rows.tolist()]
        case "target":
            return [targets[row] for row in rows.tolist()]
        case _:
            return [f"{sources[row]}\n{targets[row]}" for row in rows.tolist()]


def _kept_copies(copies: Rows, corpus: Corpus, n_dev: int, is_held_out: bool) -> str:
    """Return a message about near-copies that stay in the training set."""
    text = f"training pairs with the same letters as a dev pair: {len(copies):,}"
    if is_held_out:
        text += ", kept because they are more than 10% of all pairs"
    is_serious = len(copies) > _MAX_OVERLAP * n_dev
    prefix, advice = ("warning: ", "; the dev scores may be too high") if is_serious else ("", "")
    return f"{prefix}{text}{advice}{example_text(_pair(corpus, copies))}"


def _pair(corpus: Corpus, rows: Rows) -> Pair | None:
    """Return the first pair in `rows`, or None if `rows` is empty."""
    return corpus.pair(int(rows[0])) if len(rows) else None


def _report(dropped: Sequence[Dropped], n_total: int, notify: Notify) -> None:
    """Report how many pairs each filter drops; raise `DataError` if no pairs remain."""
    found = [one for one in dropped if one.n_pairs]
    n_dropped = sum(one.n_pairs for one in found)
    for one in found if n_dropped < n_total else ():
        notify(one.notice(n_total))
    if n_dropped <= _MANY_DROPPED * n_total:
        return
    main = max(found, key=lambda one: one.n_pairs)
    advice = f"disable this filter with --set filters.{main.name}={main.disabled}"
    if n_dropped == n_total:
        counts = ", ".join(f"{one.n_pairs:,} with {one.reason}" for one in found)
        example = example_text(main.example)
        raise DataError(
            f"the filters drop all of {format_count(n_total, 'training pair')}: {counts}{example}",
            hint=f"check the corpus and filters.{main.name}, or {advice}",
        )
    notify(
        f"warning: the filters drop {n_dropped:,} of {format_count(n_total, 'pair')}, most of them "
        f"because of filters.{main.name}; if this is not intended, {advice}"
    )

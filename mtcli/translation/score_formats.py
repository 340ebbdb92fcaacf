"""Output formats for scored pairs (text, tsv and jsonl) and for their totals."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mtcli.counts import format_count
from mtcli.tokenizer import replace_surrogates
from mtcli.translation.scoring import Pair, PairScore, ScoreTotals

_DIGITS = 4


@dataclass(frozen=True)
class ScoreFormat:
    """Output format for scored pairs, one per line."""

    name: str = "text"  # text: score only; tsv and jsonl: also token count, source and target
    length_penalty: float = 0.0
    with_tokens: bool = False

    def format_line(self, pair: Pair, score: PairScore) -> str:
        """Return the output line for a pair, without a trailing newline."""
        value = score.score(self.length_penalty)
        if self.name == "jsonl":
            return self._to_json(pair, score, value)
        if self.name == "text":
            return f"{value:.{_DIGITS}f}"
        cells = [f"{value:.{_DIGITS}f}", str(len(score.tokens)), pair.source, pair.target]
        if self.with_tokens:
            cells += [" ".join(score.tokens), " ".join(f"{x:.{_DIGITS}f}" for x in score.log_probs)]
        return "\t".join(cell.replace("\t", " ") for cell in cells)

    def _to_json(self, pair: Pair, score: PairScore, value: float) -> str:
        fields: dict[str, Any] = {
            "source": replace_surrogates(pair.source),
            "target": replace_surrogates(pair.target),
            "score": _to_number(value),
            "n_tokens": len(score.tokens),
        }
        if self.with_tokens:
            fields["tokens"] = score.tokens
            fields["log_probs"] = [round(x, _DIGITS) for x in score.log_probs]
        if warnings := list(_warnings(score)):
            fields["warnings"] = warnings
        return json.dumps(fields, ensure_ascii=False)


def format_totals(totals: ScoreTotals) -> str:
    """Return the totals as one line of text."""
    n_scored = totals.n_pairs - totals.n_overlong
    tokens = format_count(totals.n_tokens, "token")
    return (
        f"{format_count(n_scored, 'pair')} scored, {tokens}: log-probability "
        f"{totals.log_prob:.{_DIGITS}f}, perplexity {totals.perplexity:.{_DIGITS}g} per token, "
        f"{totals.bits_per_character:.{_DIGITS}g} bits per character"
    )


def totals_to_json(totals: ScoreTotals) -> str:
    """Return the totals as a JSON object; undefined values are null."""
    return json.dumps(
        {
            "n_pairs": totals.n_pairs,
            "n_overlong": totals.n_overlong,
            "n_blank": totals.n_blank,
            "n_tokens": totals.n_tokens,
            "n_characters": totals.n_characters,
            "log_prob": _to_number(totals.log_prob),
            "perplexity": _to_number(totals.perplexity),
            "bits_per_character": _to_number(totals.bits_per_character),
        }
    )


def notices(totals: ScoreTotals, max_pieces: int) -> Iterator[str]:
    """Yield warnings about overlong pairs and blank pairs, if there are any."""
    of_all = f"of {totals.n_pairs:,} pairs"
    if totals.n_overlong:
        yield (
            f"{totals.n_overlong:,} {of_all} have a source or target with more than "
            f"{max_pieces} pieces; they get the score -inf and are excluded from the totals "
            "(see --max-pieces)"
        )
    if totals.n_blank:
        yield f"{totals.n_blank:,} {of_all} have a blank source or target"


def _warnings(score: PairScore) -> Iterator[str]:
    if score.is_overlong:
        yield "overlong"
    if score.is_blank:
        yield "blank"


def _to_number(value: float) -> float | None:
    """Return a rounded number, or None for infinity and NaN, which JSON cannot represent."""
    return round(value, _DIGITS) if math.isfinite(value) else None

"""Beam search, compared with enumerating all hypotheses of a trigram model."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from mtcli.config.search import SearchOptions
from mtcli.models.base import State, TranslationModel
from mtcli.search.beam import Hypothesis, beam_search
from mtcli.search.constraints import Prefix
from mtcli.tokenizer import DEFAULT_SPECIAL_IDS, SpecialIds

pytestmark = pytest.mark.cpu

BOS, EOS, A, B = DEFAULT_SPECIAL_IDS.bos, DEFAULT_SPECIAL_IDS.eos, 4, 5


@dataclass(frozen=True)
class TrigramState(State):
    previous: torch.Tensor  # [B], the last token


class Trigram(TranslationModel):
    """Model small enough to enumerate its hypotheses.

    Each token depends on the two previous tokens. The state contains the older of them.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        table = torch.rand(6, 6, 6, generator=torch.Generator().manual_seed(seed))
        table[..., : BOS + 1] = 0  # these tokens are never output
        self.table = (table / table.sum(dim=-1, keepdim=True)).log()
        self.n_rows: list[int] = []

    def encode(self, source):
        return TrigramState(source[:, 0])

    def decode(self, target, state):
        self.n_rows.append(len(target))
        tokens = torch.cat([state.previous[:, None], target], dim=1)
        return self.table[tokens[:, :-1], tokens[:, 1:]], TrigramState(tokens[:, -1])


def log_probs(eos: float, a: float, b: float) -> torch.Tensor:
    """Return the log-probabilities [V] of the entire vocabulary."""
    return torch.tensor([0.0, 0.0, 0.0, eos, a, b]).log()


def all_hypotheses(model: Trigram, source: int, options: SearchOptions) -> Iterator[Hypothesis]:
    """Yield every possible hypothesis, including truncated ones."""
    for n in range(options.max_length + 1):
        end = [] if n == options.max_length else [EOS]
        for tokens in itertools.product([A, B], repeat=n):
            path = [source, BOS, *tokens, *end]
            steps = zip(path, path[1:], path[2:], strict=False)
            log_prob = sum(float(model.table[step]) for step in steps)
            score = log_prob / (len(path) - 2) ** options.length_penalty
            yield Hypothesis(score, tokens, is_truncated=not end)


def search(model: Trigram, sources: list[int], options: SearchOptions) -> list[list[Hypothesis]]:
    source = torch.tensor(sources)[:, None]
    return beam_search(model, source, options)


# Without a length penalty, search stops once the best hypothesis is known, so n_best is 1.
@pytest.mark.parametrize(("penalty", "n_best"), [(0.0, 1), (0.6, 3), (1.0, 3)])
@pytest.mark.parametrize("seed", range(20))
def test_a_wide_beam_finds_the_same_hypotheses_as_enumeration(penalty, n_best, seed):
    model = Trigram(seed)
    options = SearchOptions(beam_size=32, n_best=n_best, length_penalty=penalty, max_length=4)
    [found] = search(model, [A], options)
    expected = sorted(all_hypotheses(model, A, options), reverse=True)[:n_best]
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_batch_composition_does_not_change_a_translation(seed, penalty):
    model = Trigram(seed)
    options = SearchOptions(beam_size=2, n_best=2, max_length=12, length_penalty=penalty)
    alone = [search(model, [token], options)[0] for token in (A, B, EOS)]
    assert search(model, [A, B, EOS], options) == alone


@pytest.mark.parametrize("seed", range(20))
def test_beam_size_one_equals_greedy_search(seed):
    model, options = Trigram(seed), SearchOptions(beam_size=1, max_length=9)
    path, log_prob = [B, BOS], 0.0
    while len(path) < 11 and path[-1] != EOS:
        step = model.table[path[-2], path[-1]]
        path.append(int(step.argmax()))
        log_prob += float(step.max())
    [[found]] = search(model, [B], options)
    assert found.tokens == tuple(token for token in path[2:] if token != EOS)
    assert found.score == pytest.approx(log_prob / (len(path) - 2), abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_n_best_hypotheses_are_distinct_and_sorted(seed):
    options = SearchOptions(beam_size=4, n_best=4, max_length=8)
    for found in search(Trigram(seed), [A, B], options):
        assert len({h.tokens for h in found}) == len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_search_without_a_length_penalty_stops_after_the_best_candidate_ends():
    """CTranslate2's rule: stop when n_best hypotheses are finished, even if fewer than W are."""
    model = Trigram(0)
    model.table[:] = log_probs(0.5, 0.3, 0.2)  # EOS is always the most probable
    for n_best, n_steps in [(1, 1), (2, 2), (3, 2)]:
        model.n_rows.clear()
        options = SearchOptions(beam_size=4, n_best=n_best, length_penalty=0, max_length=9)
        [found] = search(model, [A], options)
        assert len(model.n_rows) == n_steps
        assert [h.tokens for h in found] == [(), (A,), (B,)][:n_best]


def test_search_stops_even_if_the_best_candidate_ended_in_an_earlier_step():
    model = Trigram(0)
    model.table[A, BOS] = log_probs(0.6, 0.4, 0.0)  # the best candidate ends at once...
    model.table[BOS, A] = log_probs(0.1, 0.5, 0.4)  # ...and later ones do not
    model.table[A, A] = model.table[A, B] = log_probs(0.1, 0.5, 0.4)
    options = SearchOptions(beam_size=3, n_best=2, length_penalty=0, max_length=9)
    search(model, [A], options)
    assert len(model.n_rows) == 2


def test_finished_sentences_are_removed_from_the_batch():
    model = Trigram(0)
    model.table[A] = log_probs(0.99, 0.005, 0.005)  # after A, EOS is almost certain
    model.table[B] = log_probs(0.0, 0.5, 0.5)  # after B, EOS is impossible
    model.table[:, A] = model.table[:, B] = model.table[B, B]
    search(model, [A, B], SearchOptions(beam_size=1, max_length=6))
    assert model.n_rows == [2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_max_length_truncates_hypotheses(max_length):
    model = Trigram(1)
    model.table[..., EOS] = -100.0
    for found in search(model, [A, B], SearchOptions(beam_size=3, max_length=max_length)):
        assert len(found[0].tokens) == max_length
        assert found[0].is_truncated


def test_only_the_best_candidate_may_end_right_after_a_prefix():
    """There is only one beam at that step; EOS as its second choice would end the search early."""
    model = Trigram(0)
    model.table[:] = log_probs(0.1, 0.8, 0.1)
    model.table[:, A] = log_probs(0.4, 0.5, 0.1)  # after A, EOS is the second choice
    options = SearchOptions(beam_size=2, n_best=2, length_penalty=0.0, max_length=4)
    prefix = Prefix(torch.tensor([[A]]), torch.tensor([1]))
    [found] = beam_search(model, torch.tensor([[A]]), options, prefix=prefix)
    assert (A,) not in [hypothesis.tokens for hypothesis in found]
    assert all(hypothesis.tokens[0] == A for hypothesis in found)


def test_bos_and_eos_come_from_the_model():
    model = Trigram(0)
    model.special = SpecialIds(bos=A, eos=B)
    source = torch.tensor([[A]])
    [[best]] = beam_search(model, source, SearchOptions(beam_size=1, max_length=6))
    path = [A, A, *best.tokens]
    for previous, token, predicted in zip(path, path[1:], path[2:], strict=False):
        assert int(model.table[previous, token].argmax()) == predicted
    assert B not in best.tokens
    assert best.is_truncated or int(model.table[path[-2], path[-1]].argmax()) == B

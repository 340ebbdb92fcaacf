import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from mtcli.models import State, TranslationModel
from mtcli.options import SearchOptions
from mtcli.search import Hypothesis, Prefix, beam_search
from mtcli.tokenizer import BOS_ID, EOS_ID

pytestmark = pytest.mark.cpu

BOS, EOS, A, B = BOS_ID, EOS_ID, 4, 5


@dataclass(frozen=True)
class Previous(State):
    word: torch.Tensor  # [B]


class Trigram(TranslationModel):
    """Small enough to enumerate: a word depends on the two before it, one of them in the state."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        table = torch.rand(6, 6, 6, generator=torch.Generator().manual_seed(seed))
        table[..., : BOS + 1] = 0  # never said
        self.table = (table / table.sum(dim=-1, keepdim=True)).log()
        self.n_rows: list[int] = []

    def encode(self, source):
        return Previous(source[:, 0])

    def decode(self, target, state):
        self.n_rows.append(len(target))
        words = torch.cat([state.word[:, None], target], dim=1)
        return self.table[words[:, :-1], words[:, 1:]], Previous(words[:, -1])


def said(*probabilities: float) -> torch.Tensor:
    """The probabilities of the end, of A and of B, among all that there is."""
    return torch.tensor([0.0, 0.0, 0.0, *probabilities])


def all_hypotheses(model: Trigram, source: int, options: SearchOptions) -> Iterator[Hypothesis]:
    """Everything search could find: what ends in time, and what is cut off."""
    for n in range(options.max_length + 1):
        end = [] if n == options.max_length else [EOS]
        for words in itertools.product([A, B], repeat=n):
            path = [source, BOS, *words, *end]
            steps = zip(path, path[1:], path[2:], strict=False)
            log_prob = sum(float(model.table[step]) for step in steps)
            score = log_prob / (len(path) - 2) ** options.length_penalty
            yield Hypothesis(score, words, is_cut=not end)


def search(model: Trigram, sources: list[int], options: SearchOptions) -> list[list[Hypothesis]]:
    source = torch.tensor(sources)[:, None]
    return beam_search(model, source, options)


# Without a penalty search ends as soon as the best is known, so it promises no more than that.
@pytest.mark.parametrize(("penalty", "n_best"), [(0.0, 1), (0.6, 3), (1.0, 3)])
@pytest.mark.parametrize("seed", range(20))
def test_a_wide_beam_finds_the_best_hypotheses_there_are(penalty, n_best, seed):
    model = Trigram(seed)
    options = SearchOptions(beam_size=32, n_best=n_best, length_penalty=penalty, max_length=4)
    [found] = search(model, [A], options)
    expected = sorted(all_hypotheses(model, A, options), reverse=True)[:n_best]
    assert [h.ids for h in found] == [h.ids for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_a_sentence_is_translated_the_same_in_any_company(seed, penalty):
    model = Trigram(seed)
    options = SearchOptions(beam_size=2, n_best=2, max_length=12, length_penalty=penalty)
    alone = [search(model, [word], options)[0] for word in (A, B, EOS)]
    assert search(model, [A, B, EOS], options) == alone


@pytest.mark.parametrize("seed", range(20))
def test_a_beam_of_one_takes_the_likeliest_word_each_time(seed):
    model, options = Trigram(seed), SearchOptions(beam_size=1, max_length=9)
    path, log_prob = [B, BOS], 0.0
    while len(path) < 11 and path[-1] != EOS:
        step = model.table[path[-2], path[-1]]
        path.append(int(step.argmax()))
        log_prob += float(step.max())
    [[found]] = search(model, [B], options)
    assert found.ids == tuple(word for word in path[2:] if word != EOS)
    assert found.score == pytest.approx(log_prob / (len(path) - 2), abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_the_n_best_are_distinct_and_sorted(seed):
    options = SearchOptions(beam_size=4, n_best=4, max_length=8)
    for found in search(Trigram(seed), [A, B], options):
        assert len({h.ids for h in found}) == len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_without_a_penalty_search_ends_when_a_best_candidate_has_ended():
    """CTranslate2's rule: not before n_best are found, but then at once, even if W are not."""
    model = Trigram(0)
    model.table[:] = said(0.5, 0.3, 0.2).log()  # the end is always likeliest
    for n_best, n_steps in [(1, 1), (2, 2), (3, 2)]:
        model.n_rows.clear()
        options = SearchOptions(beam_size=4, n_best=n_best, length_penalty=0, max_length=9)
        [found] = search(model, [A], options)
        assert len(model.n_rows) == n_steps
        assert [h.ids for h in found] == [(), (A,), (B,)][:n_best]


def test_a_best_candidate_that_ended_is_remembered():
    model = Trigram(0)
    model.table[A, BOS] = said(0.6, 0.4, 0.0).log()  # ends first of all...
    model.table[BOS, A] = said(0.1, 0.5, 0.4).log()  # ...and then not soon
    model.table[A, A] = model.table[A, B] = said(0.1, 0.5, 0.4).log()
    options = SearchOptions(beam_size=3, n_best=2, length_penalty=0, max_length=9)
    search(model, [A], options)
    assert len(model.n_rows) == 2


def test_a_finished_sentence_leaves_the_batch():
    model = Trigram(0)
    model.table[A] = said(0.99, 0.005, 0.005).log()  # after A: the end, almost surely
    model.table[B] = said(0.0, 0.5, 0.5).log()  # after B: never the end
    model.table[:, A] = model.table[:, B] = model.table[B, B]
    search(model, [A, B], SearchOptions(beam_size=1, max_length=6))
    assert model.n_rows == [2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_nothing_is_longer_than_allowed(max_length):
    model = Trigram(1)
    model.table[..., EOS] = -100.0
    for found in search(model, [A, B], SearchOptions(beam_size=3, max_length=max_length)):
        assert len(found[0].ids) == max_length
        assert found[0].is_cut


def test_right_after_a_prefix_a_worse_candidate_does_not_end():
    """Then there is one beam only; the end as its second choice would come before any other."""
    model = Trigram(0)
    model.table[:] = said(0.1, 0.8, 0.1).log()
    model.table[:, A] = said(0.4, 0.5, 0.1).log()  # after A the end is likely, but not likeliest
    options = SearchOptions(beam_size=2, n_best=2, length_penalty=0.0, max_length=4)
    prefix = Prefix(torch.tensor([[A]]), torch.tensor([1]))
    [found] = beam_search(model, torch.tensor([[A]]), options, prefix=prefix)
    assert (A,) not in [hypothesis.ids for hypothesis in found]
    assert all(hypothesis.ids[0] == A for hypothesis in found)

"""Finding a translation with any `TranslationModel`: beam search, and sampling."""

from mtcli.search.beam import Hypothesis, beam_search
from mtcli.search.constraints import Prefix
from mtcli.search.sampling import sample

__all__ = ["Hypothesis", "Prefix", "beam_search", "sample"]

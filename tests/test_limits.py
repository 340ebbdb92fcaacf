"""The config, the Python options and the command line have the same limits and defaults."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from mtcli.cli.base import app
from mtcli.config.load import load_config
from mtcli.config.search import SAMPLING_LIMITS, SEARCH_LIMITS, Sampling, SearchOptions
from mtcli.config.sections import SearchConfig
from mtcli.errors import ConfigError, MtcliError, OptionsError

INTEGERS = ("beam_size", "n_best", "max_length", "no_repeat_ngram", "top_k")
ACCEPTED = "all options are accepted"
WIDE = {"beam_size": 1000}  # n_best must not exceed the beam size


def values(name):
    """Return a strategy that draws values near an option's limits and far from them."""
    low, high = {**SEARCH_LIMITS, **SAMPLING_LIMITS}[name]
    if name in INTEGERS:
        edges = [low - 1, low, low + 1, high - 1, high, high + 1]
        return st.one_of(st.sampled_from(edges), st.integers())
    edges = [math.nextafter(limit, to) for limit in (low, high) for to in (-9e9, limit, 9e9)]
    return st.one_of(st.sampled_from([*edges, math.nan]), st.floats())


def is_accepted_by_config(name, value) -> bool:
    try:
        SearchConfig(**{**WIDE, name: value})
    except ValidationError:
        return False
    return True


def is_accepted_by_options(name, value) -> bool:
    try:
        if name in SAMPLING_LIMITS:
            Sampling(**{name: value})
        else:
            SearchOptions(**{**WIDE, name: value})
    except OptionsError:
        return False
    return True


class FakeTranslator:
    """Translator with a wide default beam that reports every option as accepted."""

    options = SearchOptions(**WIDE)

    def __init__(self, *_arguments, **_options) -> None:
        pass

    def check(self, _options) -> None:
        raise MtcliError(ACCEPTED)


def is_accepted_by_command(name, value) -> bool:
    command = ["translate", "model", f"--{name.replace('_', '-')}={value!r}"]
    command += ["--sampling"] if name in SAMPLING_LIMITS else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mtcli.translation.translator.Translator", FakeTranslator)
        result = CliRunner().invoke(app, command)
    if ACCEPTED in result.output:
        return True
    assert result.exit_code == 2, result.output  # a usage error
    return False


@pytest.mark.parametrize("name", SEARCH_LIMITS)
def test_config_options_and_command_line_accept_the_same_values(name):
    @given(values(name))
    @example(10**400 if name in INTEGERS else math.inf)
    def check(value):
        is_accepted = is_accepted_by_options(name, value)
        low, high = SEARCH_LIMITS[name]
        assert is_accepted == (low <= value <= high)
        assert is_accepted_by_config(name, value) == is_accepted
        assert is_accepted_by_command(name, value) == is_accepted

    check()


@pytest.mark.parametrize("name", SAMPLING_LIMITS)
def test_sampling_options_and_command_line_accept_the_same_values(name):
    @given(values(name))
    def check(value):
        is_accepted = is_accepted_by_options(name, value)
        low, high = SAMPLING_LIMITS[name]
        assert is_accepted == (low <= value <= high)
        assert is_accepted_by_command(name, value) == is_accepted

    check()


@given(st.integers(1, 12), st.integers(1, 12))
@example(4, 5)
def test_config_and_options_refuse_n_best_larger_than_beam_size(beam_size, n_best):
    fits = n_best <= beam_size
    for accepts in (SearchConfig, SearchOptions):
        if fits:
            accepts(beam_size=beam_size, n_best=n_best)
        else:
            with pytest.raises(ValueError, match=f"n_best={n_best} is larger than beam_size="):
                accepts(beam_size=beam_size, n_best=n_best)


def test_all_search_settings_have_limits():
    assert set(SearchConfig.model_fields) == set(SEARCH_LIMITS)


def test_config_and_options_have_the_same_defaults():
    for name, field in SearchConfig.model_fields.items():
        assert field.default == getattr(SearchOptions(), name)
    assert SearchOptions(**SearchConfig().model_dump()) == SearchOptions()


def test_loading_a_config_rejects_an_out_of_range_search_setting():
    files = ("data.train", ["a", "b"])
    with pytest.raises(ConfigError, match=r"search.beam_size: .* 1000 \(got 2000\)") as error:
        load_config(None, [files, ("search.beam_size", 2000)])
    assert str(error.value).count("\n") == 1


@pytest.mark.parametrize("value", ["4", None, True, 4.0, [4]])
def test_an_integer_option_rejects_other_types(value):
    with pytest.raises(MtcliError, match="beam_size=.* is not an integer"):
        SearchOptions(beam_size=value)


@pytest.mark.parametrize("value", ["4", None, True, [4]])
def test_a_float_option_rejects_other_types(value):
    with pytest.raises(MtcliError, match="length_penalty=.* is not a number"):
        SearchOptions(length_penalty=value)


def test_a_length_ratio_of_zero_is_rejected():
    with pytest.raises(OptionsError, match="max_length_ratio=0 is not between 0.01 and 1000"):
        SearchOptions(max_length_ratio=0)


@pytest.mark.parametrize("option", ["--length-penalty=nan", "--beam-size=0"])
def test_evaluate_reports_options_out_of_range_as_usage_errors(option, tmp_path, monkeypatch):
    monkeypatch.setattr("mtcli.translation.translator.Translator", FakeTranslator)
    for name in ("source", "reference"):
        (tmp_path / name).write_text("a\n")
    command = ["evaluate", "model", str(tmp_path / "source"), str(tmp_path / "reference"), option]
    assert CliRunner().invoke(app, command).exit_code == 2

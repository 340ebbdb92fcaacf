"""The handmade models produce their documented output, by a wide margin."""

import pytest

from mtcli import Translator
from mtcli.config.search import EngineOptions, SearchOptions
from mtcli.translation.line_translator import Request

pytestmark = pytest.mark.cpu

ENGINES = {
    "torch": EngineOptions(engine="torch"),
    "float32": EngineOptions(engine="ctranslate2", quantization="float32"),
    "int8": EngineOptions(engine="ctranslate2", quantization="int8"),
}


def translate(directory, engine, lines, **options):
    translator = Translator(directory, engine=ENGINES[engine])
    search = SearchOptions(**{"beam_size": 2, "max_length": 32, **options})
    return [best[0] for best in translator.translate_all([Request(line) for line in lines], search)]


@pytest.mark.parametrize("engine", ENGINES)
def test_copying_model_outputs_its_source(copying_model, corpus, engine):
    lines = [*corpus.source, *corpus.target, "€ and ß"]
    found = translate(copying_model, engine, lines, with_alignment=True)
    assert [best.text for best in found] == lines
    assert min(best.score for best in found) > -1e-6
    for line, best in zip(lines, found, strict=True):
        assert best.alignment == tuple((i, i) for i in range(len(line.split())))


@pytest.mark.parametrize("engine", ENGINES)
def test_repeating_model_never_outputs_eos(repeating_model, engine):
    [found] = translate(repeating_model, engine, ["water"])
    assert (found.text, found.is_truncated) == (" ".join(["mag"] * 32), True)
    assert found.score > -1e-6


@pytest.mark.parametrize("engine", ENGINES)
def test_hesitant_model_prefers_an_empty_translation(hesitant_model, engine):
    [found] = translate(hesitant_model, engine, ["water"], length_penalty=0.0)
    assert found.text == ""
    [greedy] = translate(hesitant_model, engine, ["water"], beam_size=1)
    assert greedy.text == " ".join(["mag"] * 32)

"""Models from earlier versions still work."""

import json

import pytest

from mtcli.config.search import EngineOptions
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.errors import CheckpointError
from mtcli.export.directory import open_export
from mtcli.model_dir.card import describe
from mtcli.model_dir.manifest import VERSION, Shortlist, read_manifest
from mtcli.tokenizer import train_tokenizers
from mtcli.translation.engines import open_engine
from old_models import CT2, LINES, TORCH, TRANSLATIONS, old_model, translates


@pytest.fixture
def old(tmp_path):
    return old_model(tmp_path / "model")


def read_manifest_json(model) -> dict:
    return json.loads((model / "ctranslate2" / "mtcli.json").read_bytes())


@pytest.mark.parametrize("engine", [TORCH, CT2], ids=["torch", "CTranslate2"])
def test_a_model_from_version_0_1_0_translates(old, engine):
    assert translates(old, engine)


def test_a_model_from_version_0_1_0_has_a_description(old):
    assert dict(describe(old))["parameters"] == "7,072"


def test_a_version_4_export_is_rebuilt_and_keeps_its_measured_shortlist(old):
    saved = read_manifest_json(old)
    assert saved["version"] == 4
    content = (old / "ctranslate2" / "vmap.txt").read_bytes()
    export = open_export(old, "int8")
    assert export.vocabulary_map == content
    manifest = read_manifest(old / "ctranslate2")
    assert manifest.version == VERSION
    assert manifest.shortlist == Shortlist(**saved["shortlist"])


def test_a_version_4_shortlist_is_disabled_after_a_config_change(old):
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("  beam_size: 4\n", "  beam_size: 3\n"))
    assert open_export(old, "int8").manifest.shortlist is None
    assert open_export(old, "int8", shortlist=True).vocabulary_map


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"\t</s>\nx\tunknown\n", b"\xff\t</s>\n"])
def test_an_invalid_version_4_vocabulary_map_is_removed(old, content):
    (old / "ctranslate2" / "vmap.txt").write_bytes(content)
    assert translates(old)
    assert read_manifest(old / "ctranslate2").vocabulary_map is None
    assert not (old / "ctranslate2" / "vmap.txt").exists()


def test_a_tokenizer_of_the_wrong_size_is_refused_even_without_checksums(old):
    options = TokenizerConfig(kind="bpe", vocab_size=70, byte_fallback=False)
    other = train_tokenizers(LINES, TRANSLATIONS, options)
    (old / "tokenizer.model").write_bytes(other.source.model)
    for engine in (TORCH, CT2, EngineOptions()):
        with pytest.raises(CheckpointError, match=r"source_embedding\.weight has"):
            open_engine(old, engine)
    with pytest.raises(CheckpointError, match=r"does not match .*tokenizer\.model"):
        open_engine(old, CT2)

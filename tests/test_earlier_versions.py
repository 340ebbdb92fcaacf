"""Finished models of earlier versions still work."""

import json

import pytest

from mtcli.checkpoint.directory import describe
from mtcli.config import TokenizerConfig
from mtcli.engines import open_engine
from mtcli.errors import CheckpointError
from mtcli.export.directory import open_export
from mtcli.export.manifest import VERSION, Shortlist, read_manifest
from mtcli.options import EngineOptions
from mtcli.tokenizer import train_tokenizers
from old_models import CT2, LINES, TORCH, TRANSLATIONS, old_model, translates


@pytest.fixture
def old(tmp_path):
    return old_model(tmp_path / "model")


def previous(model) -> dict:
    return json.loads((model / "ctranslate2" / "mtcli.json").read_bytes())


@pytest.mark.parametrize("engine", [TORCH, CT2], ids=["torch", "CTranslate2"])
def test_a_model_of_the_first_version_translates(old, engine):
    assert translates(old, engine)


def test_a_model_of_the_first_version_is_described(old):
    assert dict(describe(old))["parameters"] == "7,072"


def test_an_export_of_version_4_is_rebuilt_and_keeps_its_measured_shortlist(old):
    facts = previous(old)
    assert facts["version"] == 4
    content = (old / "ctranslate2" / "vmap.txt").read_bytes()
    export = open_export(old, "int8")
    assert export.shortlist == content
    manifest = read_manifest(old / "ctranslate2")
    assert manifest.version == VERSION
    assert manifest.shortlist == Shortlist(**facts["shortlist"])


def test_a_shortlist_of_version_4_is_off_with_other_weights(old):
    path = old / "config.yaml"
    path.write_text(path.read_text().replace("  beam_size: 4\n", "  beam_size: 3\n"))
    assert open_export(old, "int8").manifest.shortlist is None
    assert open_export(old, "int8", shortlist=True).shortlist


@pytest.mark.parametrize(
    "content", [b"", b"garbage\n", b"\t</s>\nx\tunheard-of\n", b"\xff\t</s>\n"]
)
def test_a_map_of_version_4_that_does_not_parse_is_dropped(old, content):
    (old / "ctranslate2" / "vmap.txt").write_bytes(content)
    assert translates(old)
    assert read_manifest(old / "ctranslate2").vocabulary_map is None
    assert not (old / "ctranslate2" / "vmap.txt").exists()


def test_a_tokenizer_of_another_size_is_named_though_there_are_no_checksums(old):
    options = TokenizerConfig(kind="bpe", vocab_size=70, byte_fallback=False)
    other = train_tokenizers(LINES, TRANSLATIONS, options)
    (old / "tokenizer.model").write_bytes(other.source.model)
    for engine in (TORCH, CT2, EngineOptions()):
        with pytest.raises(CheckpointError, match=r"source_embedding\.weight has"):
            open_engine(old, engine)
    with pytest.raises(CheckpointError, match=r"tokenizer\.model does not belong to"):
        open_engine(old, CT2)

from pathlib import Path

import pytest
import yaml

from mtcli.config.load import differences, load_config, parse_override, to_yaml
from mtcli.config.reference import reference_yaml
from mtcli.config.sections import Config
from mtcli.errors import ConfigError
from mtcli.model_dir.directory import save_config

CONFIGS = Path(__file__).parent.parent / "configs"
DATA = "data: {train: [a.en, a.de]}\n"


@pytest.fixture
def load(tmp_path):
    def load_text(text, overrides=()):
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, map(parse_override, overrides))

    return load_text


def test_the_last_override_wins_and_is_parsed_as_yaml(load):
    config = load(
        DATA, ["train.learning_rate=1", "train.learning_rate=1e-4", "train.max_norm=null"]
    )
    assert config.train.learning_rate == 1e-4
    assert config.train.max_norm is None


def test_an_override_takes_precedence_over_the_file_and_the_file_over_the_default(load):
    config = load(DATA + "train: {steps: 7, warmup: 3}", ["train.warmup=2"])
    assert (config.train.steps, config.train.warmup, config.train.accumulate) == (7, 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DATA + "train: {step: 1}", "train.step: unknown key; did you mean train.steps?"),
        (DATA + "train: {batch_tokens: 1}", "did you mean data.batch_tokens?"),
        (DATA + "trian: {}", "trian: unknown key; did you mean train?"),
        (DATA + "zzzzzz: {}", "zzzzzz: unknown key; `mtcli config reference` lists all keys"),
        (DATA + "train: {steps: -1}", "train.steps: must be greater than 0 (got -1)"),
        (DATA + "train: {steps: many}", "train.steps: must be an integer"),
        (DATA + "train: {learning_rate: .inf}", "train.learning_rate: must be a finite"),
        (DATA + "train: {betas: [0.9, 1.0]}", "train.betas.1: must be less than 1"),
        (DATA + "train: {steps: 2024-13-45}", "is not valid YAML: month must be in 1..12"),
        (DATA + "train: {seed: 99999999999999999999}", "train.seed: must be less than"),
        (DATA + "tokenizer: {vocab_size: 100000000000}", "tokenizer.vocab_size: must be"),
        (
            DATA + "tokenizer: {character_coverage: 0.5}",
            "tokenizer.character_coverage: must be greater",
        ),
        (DATA + "search: {length_penalty: 500}", "search.length_penalty: must be less"),
        (
            DATA + "search: {max_length: 9}",
            "search.max_length=9 is smaller than data.max_length=128",
        ),
        (
            DATA + "train: {device: gpu}",
            "train.device: must be auto, cpu, mps, cuda or cuda:N (got 'gpu')",
        ),
        ("train: {}", "data.train: required; pass SOURCE and TARGET"),
        ("data: {}", "data.train: required; pass SOURCE and TARGET"),
        (
            "data: {train: [a, b, c]}",
            "data.train: must be a corpus name, two files [source, target]",
        ),
        (DATA + "model: {arch: cnn}", "model.arch: must be one of 'transformer', 'decoder_only',"),
        (
            DATA + "model: {arch: rnn, n_heads: 2}",
            "model.n_heads: unknown key; only for model.arch=transformer or decoder_only",
        ),
        (DATA + "model: 5", "model: expected a section (got 5)"),
        (DATA + "model: {n_heads: 5}", "model: n_heads=5 does not divide d_model=192"),
        (
            DATA + "model: {d_model: 15, n_heads: 5}",
            "model.d_model: must be a multiple of 2",
        ),
        (DATA + "search: {n_best: 5}", "search: n_best=5 is larger than beam_size=4"),
        (DATA + "tokenizer: {is_shared: false}", "model.tied_embeddings=all requires a shared"),
        (DATA + "model: {positions: learned, max_positions: 9}", "model.max_positions=9 is too"),
        (DATA + "tokenizer: {kind: yes}", "tokenizer.kind: must be 'unigram' or 'bpe'"),
        (DATA + "model: {n_heads: yes}", "model.n_heads: expected a number; YAML reads no, yes"),
        (DATA + "train: {device: no}", "YAML reads no, yes, on and off as booleans"),
        ("data: {train: [a.en, no]}", "YAML reads no, yes, on and off as booleans"),
        ("[1, 2]", "is not a configuration: expected sections"),
        ("data: {train: [\n  a,", "is not valid YAML: line 2, column 5: expected the node content"),
        ("data: \0", "is not valid YAML: unacceptable character #x0000: special"),
        (DATA + "train: {freeze: 3}", "train.freeze: must be a list (got 3)"),
    ],
)
def test_an_error_names_the_problem_and_gives_a_hint(load, text, message):
    with pytest.raises(ConfigError) as error:
        load(text)
    assert message in str(error.value)


def test_one_error_lists_all_problems(load):
    with pytest.raises(ConfigError) as error:
        load("model: {heads: 4}\ntrain: {steps: 0}\nserach: {}")
    for key in ("data.train", "model.heads", "train.steps", "serach"):
        assert key in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps", "--set train.steps is not of the form section.key=value"),
        ("train.steps.more=1", "train.steps: must be an integer"),
        ("train=1", "--set train=1: expected a section (got 1)"),
        ("model=7", "--set model=7: expected a section (got 7)"),
        ("train.=3", "--set train.=3 is not of the form section.key=value"),
        ("=3", "--set =3 is not of the form section.key=value"),
        ("train.steps=[1", "--set train.steps is not valid YAML: line 1, column 3: expected ','"),
    ],
)
def test_an_error_names_the_invalid_override(load, override, message):
    with pytest.raises(ConfigError) as error:
        load(DATA, [override])
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


def test_an_error_names_the_unreadable_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot read .*none.yaml: No such file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"data: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "latin.yaml")


def test_an_empty_section_has_all_defaults(load):
    assert load(DATA + "train:\n  # steps: 5\n") == load(DATA)


def test_a_saved_config_can_be_loaded(load, tmp_path):
    config = load(DATA, ["train.seed=5"])
    save_config(tmp_path / "model", config)
    assert load_config(tmp_path / "model" / "config.yaml") == config


def test_loading_written_yaml_gives_the_same_config(load):
    config = load(DATA, ["train.max_norm=null", "train.learning_rate=3e-05"])
    assert load(to_yaml(config)) == config


def test_a_difference_names_the_key_and_both_values(load):
    one, other = load(DATA), load(DATA, ["train.seed=5"])
    assert differences(one, one) == []
    assert differences(one, other) == ["train.seed: 1 before, 5 now"]


def test_a_config_cannot_be_changed(load):
    with pytest.raises(ValueError, match="frozen"):
        load(DATA).train.steps = 3


def test_the_reference_file_matches_the_config_classes():
    assert (CONFIGS / "reference.yaml").read_text(encoding="utf-8") == reference_yaml()


def test_the_reference_contains_all_keys_with_their_defaults():
    written = yaml.safe_load(reference_yaml())
    config = Config.model_validate({"data": {"train": written["data"]["train"]}})
    assert written == config.model_dump(mode="json")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_included_config_is_valid(path):
    assert load_config(path).data.train


def test_differences_list_a_new_architecture_but_not_its_other_keys():
    files = [("data.train", ["a.en", "a.de"])]
    old = load_config(None, [*files, ("model.arch", "rnn"), ("model.cell", "gru")])
    new = load_config(None, [*files, ("train.steps", 7)])
    assert differences(old, new) == [
        "model.arch: rnn before, transformer now",
        f"train.steps: {old.train.steps} before, 7 now",
    ]


@pytest.mark.parametrize(
    ("text", "overrides", "lines"),
    [
        # One problem on the command line: the file is not mentioned.
        ("", ["train.step=5"], ["--set train.step=5: unknown key; did you mean train.steps?"]),
        ("", ["trian.steps=5"], ["--set trian.steps=5: unknown key; did you mean train.steps?"]),
        ("", ["train.steps.more=1"], ["--set train.steps.more=1: train.steps: must be"]),
        ("", ["model.arch=cnn"], ["--set model.arch=cnn: must be one of 'transformer',"]),
        ("", ["model={n_heads: 5}"], ["--set model={n_heads: 5}: n_heads=5 does not divide"]),
        # The file and each value are valid: name the setting that breaks the combination.
        (
            "",
            ["train.seed=3", "tokenizer.is_shared=false", "train.steps=9"],
            ["--set tokenizer.is_shared=false: model.tied_embeddings=all requires a shared"],
        ),
        (
            "",
            ["model.n_heads=5", "model.d_model=96"],
            ["--set model.n_heads=5: model: n_heads=5 does not divide d_model=96"],
        ),
        # Either setting causes the problem: name the last one.
        (
            "",
            ["search.max_length=9", "data.max_length=500"],
            ["--set data.max_length=500: search.max_length=9 is smaller"],
        ),
        # The value in the file and the value that replaces it are both invalid.
        ("train: {steps: -1}", ["train.steps=-5"], ["--set train.steps=-5: must be"]),
        # Problems in the file are attributed to the file, whatever else is set.
        ("model: {arch: cnn}", ["model.n_heads=4"], ["FILE is not", "model.arch: must be one of"]),
        (
            "tokenizer: {is_shared: false}\ntrain: {steps: -1}",
            ["train.steps=5"],
            ["FILE is not", "model.tied_embeddings=all requires a shared"],
        ),
        # One error lists the problems in the file and in the options, each with its origin.
        (
            "train: {stepz: 1}",
            ["train.step=5", "search.beam=2"],
            [
                "invalid settings:",
                "FILE: train.stepz: unknown key; did you mean train.steps?",
                "--set train.step=5: unknown key; did you mean train.steps?",
                "--set search.beam=2: unknown key; did you mean search.beam_size?",
            ],
        ),
        ("train: 7", ["train.steps=5"], ["--set train.steps=5: cannot set steps inside 7"]),
    ],
)
def test_a_problem_is_attributed_to_the_file_or_the_option(load, tmp_path, text, overrides, lines):
    with pytest.raises(ConfigError) as error:
        load(DATA + text, overrides)
    found = str(error.value).replace(str(tmp_path / "config.yaml"), "FILE").splitlines()
    assert len(found) == len(lines)
    for line, start in zip(found, lines, strict=True):
        assert line.strip().startswith(start)


def test_only_user_settings_are_named_as_the_cause():
    chosen = [("data.train", ["a.en", "a.de"]), ("model.d_model", 96)]
    with pytest.raises(ConfigError) as error:
        load_config(None, [*chosen, ("model.n_heads", 5), parse_override("train.seed=3")])
    assert str(error.value).startswith("invalid configuration:\n  model: n_heads=5 does not")

"""The commands in docs/wmt14.md run unchanged on a small corpus with the same structure."""

import os
import re
import sys
from pathlib import Path

import pytest

from conftest import DEMO
from mtcli.config.load import load_config
from mtcli.hardware import Hardware
from mtcli.planning.corpus_stats import ASSUMED_CORPUS
from mtcli.planning.plan import estimate_config, plan_lines
from processes import output_of, run

PAGE = Path(__file__).parent.parent / "docs" / "wmt14.md"
CONFIGS = Path(__file__).parent.parent / "configs"
FAST = {
    "tokenizer.vocab_size": 400,
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.n_encoder_layers": 1,
    "model.n_decoder_layers": 1,
    "model.d_feed_forward": 32,
    "data.batch_tokens": 2000,
    "data.max_length": 40,
    "search.max_length": 40,
    "train.steps": 8,
    "train.warmup": 2,
    "train.validate_every": 2,
    "train.validate_pairs": 4,
}


def page_commands() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```", text, flags=re.M | re.S)[0].splitlines()


def save_dataset(directory: Path) -> None:
    """Save a dataset with the structure of wmt/wmt14 de-en: splits and one translation column."""
    import datasets

    sides = [
        (DEMO / f"dev.{code}").read_text(encoding="utf-8").splitlines() for code in ("de", "en")
    ]
    rows = [{"de": de, "en": en} for de, en in zip(*sides, strict=True)]
    features = datasets.Features({"translation": datasets.Translation(languages=["de", "en"])})
    splits = {"train": rows[:300], "validation": rows[300:310], "test": rows[310:320]}
    datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict({"translation": part}, features=features)
            for name, part in splits.items()
        }
    ).save_to_disk(str(directory))


def save_test_set(directory: Path, n_lines: int = 20) -> None:
    """Write the files that sacreBLEU stores for its test set wmt14/full."""
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    for field, code in (("src", "en"), ("ref", "de")):
        path = Path(DATASETS["wmt14/full"]._get_txt_file_path("en-de", field))
        path = directory / path.relative_to(SACREBLEU_DIR)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (DEMO / f"test.{code}").read_text(encoding="utf-8").splitlines()[:n_lines]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def adapt(command: str) -> str:
    """Return a command changed to use the small corpus, small models and one process."""
    command = command.replace("hf:wmt/wmt14/de-en", "wmt14").replace(" --processes 8", "")
    if " train " in command:
        command += "".join(f" --set {key}={value}" for key, value in FAST.items())
    return command


@pytest.mark.long
def test_the_commands_run_from_the_corpus_to_the_score(tmp_path):
    save_dataset(tmp_path / "wmt14")
    save_test_set(tmp_path / "sacrebleu")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SACREBLEU": str(tmp_path / "sacrebleu")}
    commands = page_commands()
    assert [command.split()[1] for command in commands] == ["train", "evaluate"] * 2
    for command in commands:
        result = run(["bash", "-c", adapt(command)], cwd=tmp_path, env=env)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
    assert "wmt14-base" in result.stdout
    assert "p-value" in result.stdout
    assert len((tmp_path / "wmt14-base.de").read_text(encoding="utf-8").splitlines()) == 20


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [("base", 63_082_496, 9.1e17), ("big", 214_245_376, 9.3e18)],
)
def test_the_page_states_the_size_and_the_cost_of_the_recipes(name, parameters, flops):
    config = load_config(CONFIGS / f"transformer-{name}.yaml")
    plan = estimate_config(ASSUMED_CORPUS, config, Hardware(2, 25 * 10**9, 140.0, None))
    assert plan.estimate.n_parameters == parameters
    assert f"{plan.estimate.flops:.1e}" == f"{flops:.1e}"
    text = PAGE.read_text(encoding="utf-8")
    assert f"{parameters / 1e6:.1f} M" in text
    assert f"{flops:.1e}".replace("+", "") in text
    if name == "base":
        for line in plan_lines(plan)[:4]:
            assert line in text


def test_a_recipe_is_planned_without_its_corpus(tmp_path):
    command = [sys.executable, "-m", "mtcli", "train", "--config", "transformer-big", "--dry-run"]
    text = output_of([*command, "--out", "x"], cwd=tmp_path)
    assert "214,245,376 parameters" in text
    assert "9.3e+18 FLOPs" in text
    assert not (tmp_path / "x").exists()
    result = run([*command[:-1], "--out", "x"], cwd=tmp_path)
    assert result.returncode == 1
    assert "train.en is not in the current directory" in result.stderr

"""A model and an unfinished run from version 0.2.0 still work.

Both were created with the last commit of 0.2.0 before the packages were reorganized.
"""

import json
import shutil
from pathlib import Path

import pytest

from conftest import tiny_pairs
from mtcli.model_dir.directory import load_saved_config
from mtcli.reporting.events import Finished, Resumed
from mtcli.training.run import train_run
from old_models import CT2, TORCH, translates

VERSION = Path(__file__).parent / "data" / "version-0.2.0"


@pytest.mark.parametrize("engine", [TORCH, CT2], ids=["torch", "CTranslate2"])
def test_a_model_from_version_0_2_0_can_translate(tmp_path, engine):
    assert translates(shutil.copytree(VERSION / "model", tmp_path / "model"), engine)


def test_an_unfinished_run_from_version_0_2_0_resumes_and_finishes(tmp_path, monkeypatch):
    run = shutil.copytree(VERSION / "unfinished", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for name, lines in zip(("train.en", "train.de"), zip(*tiny_pairs(), strict=True), strict=True):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    log = (run / "log.jsonl").read_bytes()
    events = []
    finished = train_run(load_saved_config(run), run, events.append)
    assert isinstance(finished, Finished)
    assert finished.step == 600
    assert [event.step for event in events if isinstance(event, Resumed)] == [450]
    new_log = (run / "log.jsonl").read_bytes()
    assert new_log.startswith(log)
    assert json.loads(new_log.splitlines()[-1])["event"] == "finished"
    assert translates(run)

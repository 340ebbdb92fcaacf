"""Precision of a run: chosen when the run starts, saved, and kept when it resumes."""

from pathlib import Path

import pytest
import torch

from mtcli import hardware
from mtcli.config.load import load_config, with_overrides
from mtcli.errors import CheckpointError
from mtcli.model_dir.directory import load_saved_config
from mtcli.model_dir.layout import WEIGHTS
from mtcli.reporting.events import Resumed, StepDone, Stopped
from mtcli.training import run_settings
from mtcli.training.run import RunOptions, train_run

pytestmark = pytest.mark.cpu


@pytest.fixture
def bfloat16_cpu(monkeypatch):
    """Return a function that determines whether the CPU seems to support bfloat16."""

    def support(has_bfloat16: bool) -> None:
        monkeypatch.setattr(run_settings, "has_cpu_bfloat16", lambda: has_bfloat16)

    return support


def short_config(tiny_config, **train: object):
    settings = {"steps": 12, "validate_every": 4, "precision": "auto", **train}
    return with_overrides(tiny_config, [(f"train.{key}", value) for key, value in settings.items()])


def ignore(_event: object) -> None:
    """Ignore an event."""


def stop_after(n_steps: int):
    """Return a listener that interrupts training after `n_steps` steps."""

    def listener(event: object) -> None:
        if isinstance(event, StepDone) and event.step == n_steps:
            raise KeyboardInterrupt

    return listener


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_auto_uses_bfloat16_only_on_cpus_that_support_it(
    tiny_config, tmp_path, bfloat16_cpu, has_bfloat16
):
    bfloat16_cpu(has_bfloat16)
    train_run(short_config(tiny_config), tmp_path / "run", ignore)
    expected = "bfloat16" if has_bfloat16 else "float32"
    assert load_saved_config(tmp_path / "run").train.precision == expected
    assert f", in {expected}" in (tmp_path / "run" / "log.jsonl").read_text()


def test_recurrent_models_train_in_float32():
    config = load_config(None, [("data.train", ("a", "b")), ("model.arch", "rnn")])
    assert config.cpu_precision(has_bfloat16=True) == "float32"


def test_a_precision_that_the_user_sets_is_used_on_every_cpu():
    for precision in ("float32", "bfloat16"):
        config = load_config(None, [("data.train", ("a", "b")), ("train.precision", precision)])
        for has_bfloat16 in (True, False):
            assert config.cpu_precision(has_bfloat16=has_bfloat16) == precision


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_a_resumed_run_keeps_its_precision_and_has_the_same_weights(
    tiny_config, tmp_path, bfloat16_cpu, precision
):
    config = short_config(tiny_config, save_minutes=1e-9)
    bfloat16_cpu(precision == "bfloat16")
    train_run(config, tmp_path / "whole", ignore)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "parts", stop_after(6))
    bfloat16_cpu(precision != "bfloat16")  # resume on a different machine
    events: list = []
    train_run(config, tmp_path / "parts", events.append)
    assert [event.step for event in events if isinstance(event, Resumed)] == [5]
    assert load_saved_config(tmp_path / "parts").train.precision == precision
    weights = [(tmp_path / name / WEIGHTS).read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def rewrite_as_format_3(directory: Path, precision: str) -> None:
    """Change config.yaml to what an earlier version would have written."""
    path = directory / "config.yaml"
    text = path.read_text().replace("format: 5", "format: 3")
    lines = [
        f"  precision: {precision}" if line.startswith("  precision:") else line
        for line in text.splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")


def interrupted(config, directory: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_run(config, directory, stop_after(6))


def test_a_run_of_an_earlier_version_resumes_in_float32_on_every_cpu(
    tiny_config, tmp_path, bfloat16_cpu
):
    bfloat16_cpu(False)
    config = short_config(tiny_config)
    interrupted(config, tmp_path / "run")
    rewrite_as_format_3(tmp_path / "run", "auto")
    bfloat16_cpu(True)
    events: list = []
    finished = train_run(config, tmp_path / "run", events.append)
    assert not isinstance(finished, Stopped)
    assert [event.step for event in events if isinstance(event, Resumed)] == [4]


def test_a_bfloat16_run_of_an_earlier_version_is_refused(tiny_config, tmp_path):
    config = short_config(tiny_config, precision="bfloat16")
    interrupted(config, tmp_path / "run")
    rewrite_as_format_3(tmp_path / "run", "bfloat16")
    with pytest.raises(CheckpointError, match="earlier version of mtcli .* bfloat16 differently"):
        train_run(config, tmp_path / "run", ignore)


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        ("fpu avx512f avx512_bf16", {}, True),
        ("fpu amx_bf16 amx_tile", {}, True),
        ("fpu avx2", {}, False),
        ("", {}, False),
        ("avx512_bf16", {"ATEN_CPU_CAPABILITY": "avx2"}, False),
        ("avx512_bf16", {"ATEN_CPU_CAPABILITY": "default"}, False),
        ("avx512_bf16", {"ATEN_CPU_CAPABILITY": "avx512"}, True),
        ("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, False),
        ("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, False),
        ("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, True),
        ("avx512_bf16", {"ONEDNN_MAX_CPU_ISA": "all"}, True),
    ],
)
def test_bfloat16_needs_a_cpu_flag_and_no_restriction(
    tmp_path, monkeypatch, flags, variables, expected
):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: x\n")
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hardware.has_cpu_bfloat16() is expected


def test_a_system_without_cpuinfo_has_no_bfloat16(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "missing")
    assert hardware.has_cpu_bfloat16() is False


def test_training_uses_the_given_number_of_threads(tiny_config, tmp_path):
    n_threads = set()

    def listener(event: object) -> None:
        if isinstance(event, StepDone):
            n_threads.add(torch.get_num_threads())

    previous = torch.get_num_threads()
    train_run(short_config(tiny_config), tmp_path / "run", listener, RunOptions(threads=3))
    assert n_threads == {3}
    assert torch.get_num_threads() == previous

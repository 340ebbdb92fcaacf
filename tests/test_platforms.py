"""Systems without the POSIX modules: mtcli must be importable there."""

import subprocess
import sys

import pytest
import torch

from mtcli.training import machine

WINDOWS = """
import importlib, pkgutil, signal, sys
# Other libraries do what this system needs.
import ctranslate2, rich.live, sacrebleu.metrics.bleu, torch.distributed.fsdp, typer
for name in ("fcntl", "resource", "readline", "termios", "pty"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("SIGHUP", "SIGKILL", "SIGALRM"):
    delattr(signal, name)
import mtcli
for module in pkgutil.walk_packages(mtcli.__path__, "mtcli."):
    importlib.import_module(module.name)
"""


@pytest.mark.long
def test_every_module_can_be_imported_without_posix():
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_memory_that_cannot_be_measured_is_unknown(monkeypatch):
    monkeypatch.setattr(machine, "resource", None)
    assert machine.peak_memory(torch.device("cpu")) == 0

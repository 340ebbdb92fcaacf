"""mtcli can be imported on systems without POSIX modules."""

import subprocess
import sys

import pytest
import torch

from mtcli import hardware

WINDOWS = """
import importlib, pkgutil, signal, sys
# Import third-party libraries first: they may need the modules removed below.
import ctranslate2, rich.live, sacrebleu.metrics.bleu, torch.distributed.fsdp, typer
for name in ("fcntl", "resource", "readline", "termios", "pty"):
    sys.modules[name] = None  # now importing it raises ImportError
for name in ("SIGHUP", "SIGKILL", "SIGALRM"):
    delattr(signal, name)
import mtcli
for module in pkgutil.walk_packages(mtcli.__path__, "mtcli."):
    importlib.import_module(module.name)
"""


@pytest.mark.long
def test_every_module_can_be_imported_without_posix_modules():
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_peak_memory_is_0_where_it_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(hardware, "resource", None)
    monkeypatch.setattr(hardware, "_read", lambda _: "")  # no /proc
    assert hardware.peak_memory(torch.device("cpu")) == 0

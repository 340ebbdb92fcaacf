"""What a training can use: cores, memory, their speed, a GPU. Seen without torch."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from mtcli.hardware import usable_cores, usable_memory

_SIZE = 512  # of the matrices that are multiplied to see the speed: those of a layer
_SECONDS = 0.2
_QUERY = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
_PATIENCE = 2.0  # seconds for nvidia-smi
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class Gpu:
    """The first GPU."""

    name: str
    memory: int  # bytes


@dataclass(frozen=True)
class Machine:
    """The machine as this process may use it."""

    cores: int
    memory: int  # bytes
    gflops: float  # of matrix products in float32 on all cores together
    gpu: Gpu | None = None

    @property
    def training_memory(self) -> int:
        """Bytes where the model is trained: the GPU's if there is one."""
        return self.gpu.memory if self.gpu else self.memory


def look_at_machine() -> Machine:
    """Count and measure; takes about a quarter of a second."""
    return Machine(usable_cores(), usable_memory(), _measured_gflops(), _gpu())


def _measured_gflops() -> float:
    """The best of many short products: what else runs here should not count."""
    matrix = np.random.default_rng(1).random((_SIZE, _SIZE), dtype=np.float32)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while (began := time.perf_counter()) < end:
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * _SIZE**3 / best / 1e9


def _gpu() -> Gpu | None:
    command = shutil.which("nvidia-smi")
    if command is None or os.environ.get("CUDA_VISIBLE_DEVICES") == "" or "+cpu" in _torch():
        return None
    try:
        run = subprocess.run(
            [command, *_QUERY], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):  # a driver without a GPU, or one that hangs
        return None
    return _first_gpu(run.stdout)


def _torch() -> str:
    """The version of torch, which tells whether it was built without GPUs."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _first_gpu(text: str) -> Gpu | None:
    """The first line of nvidia-smi, such as `NVIDIA A100-SXM4-40GB, 40960`."""
    name, _, memory = text.partition("\n")[0].rpartition(",")
    return Gpu(name.strip(), int(memory) * _MEBIBYTE) if memory.strip().isdigit() else None

"""Hardware that this process may use: cores, memory, GPU, speed, and torch devices.

Core counts and memory sizes respect the limits of a container. This module imports torch only in
the functions that need it, because planning and CTranslate2 run without torch.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mtcli.errors import EngineError

if TYPE_CHECKING:
    import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")

_MATRIX_SIZE = 512  # used to measure the speed; similar to the size of a layer
_MEASURING_SECONDS = 0.2
_GPU_QUERY = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
_GPU_QUERY_TIMEOUT = 2.0  # seconds
_MEBIBYTE = 2**20
_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MMAP_THRESHOLDS = (2**30, 2**25)  # the preferred value, and the maximum in older versions of glibc


@dataclass(frozen=True)
class Gpu:
    """Name and memory size of a GPU."""

    name: str
    memory: int  # bytes


@dataclass(frozen=True)
class Hardware:
    """Hardware that this process may use."""

    cores: int
    memory: int  # bytes
    gflops: float  # speed of float32 matrix products on all cores together
    gpu: Gpu | None = None
    has_bfloat16: bool = False  # the CPU multiplies bfloat16 matrices in hardware

    @property
    def training_memory(self) -> int:
        """Memory for training, in bytes: the GPU's if there is one, else the machine's."""
        return self.gpu.memory if self.gpu else self.memory


def detect_hardware() -> Hardware:
    """Return the available hardware; measuring the speed takes about a quarter of a second."""
    return Hardware(
        usable_cores(), usable_memory(), _measure_gflops(), _detect_gpu(), has_cpu_bfloat16()
    )


def usable_cores() -> int:
    """Return the number of cores that this process may use, limited by its CPU quota."""
    try:
        n_allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not available on macOS and Windows
        n_allowed = os.cpu_count() or 1
    return max(1, min([n_allowed, *_cpu_quotas()]))


def has_cpu_bfloat16() -> bool:
    """Return whether torch can multiply bfloat16 matrices with special instructions of this CPU.

    Without these instructions, the products take many times as long as in float32. The result is
    False if the CPU is unknown, or if an environment variable restricts torch or oneDNN.
    """
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    is_restricted = not any(name in isa for name in ("ALL", "DEFAULT", "BF16", "FP16", "AMX"))
    if is_restricted or os.environ.get("ATEN_CPU_CAPABILITY", "avx512") not in ("avx512", "amx"):
        return False
    lines = (line.partition(":") for line in _read(_CPU_INFO).splitlines())
    flags = next((value.split() for key, _, value in lines if key.strip() == "flags"), [])
    return not _BFLOAT16_FLAGS.isdisjoint(flags)


def usable_memory() -> int:
    """Return the memory of the machine in bytes, or the limit of the container if it is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        total = 8 * 2**30  # assumed
    return min([total, *_memory_limits()])


def _cpu_quotas() -> Iterator[int]:
    """Yield the CPU quotas of all control groups of this process, in whole cores."""
    for group in _control_groups():  # control groups, version 2
        quota, _, period = _read(group / "cpu.max").partition(" ")
        yield from _quota_cores(quota, period)
    for group in _control_groups("cpu"):  # control groups, version 1
        quota, period = (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        yield from _quota_cores(quota, period)


def _quota_cores(quota: str, period: str) -> Iterator[int]:
    """Yield the number of cores in a quota, or nothing if it is "max" or -1 (unlimited)."""
    if quota.isdigit() and period.isdigit() and int(period):
        yield int(quota) // int(period)


def _memory_limits() -> Iterator[int]:
    files = [group / "memory.max" for group in _control_groups()]
    files += [group / "memory.limit_in_bytes" for group in _control_groups("memory")]
    yield from (int(text) for text in map(_read, files) if text.isdigit())


def _control_groups(controller: str = "") -> list[Path]:
    """Return the directories of the process's control group and of all its parents.

    Every level can set a limit. Version 2 has a single tree; version 1 has one tree per
    `controller`. A container may report a path on the host. In this case, only the root exists.
    """
    root = _CGROUPS / controller
    for line in _read(_OWN_CGROUPS).splitlines():
        _, _, entry = line.partition(":")  # "4:cpu,cpuacct:/path", or "0::/path" in version 2
        controllers, _, path = entry.partition(":")
        if controller in controllers.split(",") and ".." not in path:
            own = PurePosixPath(path.lstrip("/"))
            return [root / own, *(root / parent for parent in own.parents)]
    return [root]


def _read(path: Path) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _measure_gflops() -> float:
    """Return the highest speed among many small matrix products, in GFLOPS.

    Other processes may slow down some of the products, but not all of them.
    """
    import numpy as np

    matrix = np.random.default_rng(1).random((_MATRIX_SIZE, _MATRIX_SIZE), dtype=np.float32)
    best, end = float("inf"), time.perf_counter() + _MEASURING_SECONDS
    while (began := time.perf_counter()) < end:
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * _MATRIX_SIZE**3 / best / 1e9


def _detect_gpu() -> Gpu | None:
    """Return the first GPU listed by nvidia-smi, or None if torch can use no GPU."""
    command = shutil.which("nvidia-smi")
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if command is None or is_hidden or "+cpu" in _torch_version():
        return None
    try:
        run = subprocess.run(
            [command, *_GPU_QUERY],
            capture_output=True,
            text=True,
            timeout=_GPU_QUERY_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):  # the driver finds no GPU, or hangs
        return None
    return _first_gpu(run.stdout)


def _torch_version() -> str:
    """Return the version of torch, which ends in +cpu for builds without CUDA; "" if missing."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _first_gpu(text: str) -> Gpu | None:
    """Return the first GPU in nvidia-smi's output (`NVIDIA A100-SXM4-40GB, 40960`), or None."""
    name, _, memory = text.partition("\n")[0].rpartition(",")
    return Gpu(name.strip(), int(memory) * _MEBIBYTE) if memory.strip().isdigit() else None


def choose_device(name: str) -> "torch.device":
    """Return the torch device `name`; `auto` selects a GPU if one is available."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).cpu()  # torch.device accepts devices that do not exist
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EngineError(
            f"torch cannot use {name!r} on this machine",
            hint="use cpu, or auto to let mtcli choose",
        ) from error


@contextmanager
def tuned_allocator() -> Iterator[None]:
    """Run the block with CPU settings for fast training: keep freed memory, flush denormals to 0.

    By default, glibc returns large buffers to the kernel when they are freed. The kernel clears
    them when they are allocated again, which takes 10% of the time of a training step.

    oneDNN's cache of compiled primitives is limited to 16 entries, unless the user has set its
    capacity. By default, it keeps up to 1,024 entries of about 1 MB each in bfloat16, but a step
    needs only a few dozen. The memory settings remain in effect after the block.
    """
    import torch

    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")  # oneDNN reads it once

    if libc := _glibc():
        any(libc.mallopt(_MMAP_THRESHOLD, value) for value in _MMAP_THRESHOLDS)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def share_main_arena() -> None:
    """Let all new threads of this process use the memory that the main thread has freed.

    By default, glibc gives them separate arenas.
    """
    if libc := _glibc():
        libc.mallopt(_ARENA_MAX, 1)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc, or None."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") else None  # musl has no mallopt


@contextmanager
def thread_limit(n_threads: int | None) -> Iterator[None]:
    """Run the block with `n_threads` threads in torch, then restore the previous number.

    None limits the threads to the CPU quota of the container, which torch does not know.
    """
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(n_threads or min(previous, usable_cores()))
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def peak_memory(device: "torch.device") -> int:
    """Return the peak memory use in bytes: of a CUDA device, or of this process for other devices.

    The result is 0 if the peak is unknown.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return process_peak_memory()


def reset_peak_memory() -> None:
    """Reset the result of `process_peak_memory` to the current memory use (Linux only)."""
    with suppress(OSError):  # only Linux has this file
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def process_peak_memory() -> int:
    """Return the peak memory use of this process, in bytes; 0 if unknown."""
    for line in _read(Path("/proc/self/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def private_memory() -> int:
    """Return the anonymous memory of this process, in bytes; 0 if unknown.

    After a fork, this includes memory that is still shared with the other process.
    """
    for line in _read(Path("/proc/self/status")).splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether `error` means that torch could not allocate memory."""
    import torch

    is_cpu = "can't allocate memory" in str(error)  # torch has no exception class for this
    return isinstance(error, torch.OutOfMemoryError) or is_cpu

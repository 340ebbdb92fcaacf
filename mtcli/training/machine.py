"""What a process that trains asks of the machine it runs on."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from mtcli.config import TrainConfig

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's settings, from malloc.h
_MMAP_THRESHOLDS = (2**30, 2**25)  # what we want, and what older versions allow


@contextmanager
def cheap_steps() -> Iterator[None]:
    """Within, steps are cheap on CPUs: buffers stay ours, and numbers next to zero are zero.

    glibc gives a large buffer back to the kernel as soon as it is free, and the kernel clears it
    when it is asked for again: a tenth of the time of a step.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # another C library has other habits
            any(libc.mallopt(_MMAP_THRESHOLD, value) for value in _MMAP_THRESHOLDS)
            libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def arithmetic(options: TrainConfig, device: torch.device) -> torch.dtype:
    """The type that matrix products are made in; TF32 on GPUs where that is float32."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    match options.precision:
        case "bfloat16":
            return torch.bfloat16
        case "float16":
            return torch.float16
        case "auto" if device.type == "cuda" and torch.cuda.is_bf16_supported():
            return torch.bfloat16
        case _:
            return torch.float32


def peak_memory(device: torch.device) -> int:
    """Return the most bytes in use so far, on the GPU if it is used; 0 if it is unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

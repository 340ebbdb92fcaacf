"""Cores and memory that this process may use, within the limits of its container."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the number of cores that this process may run on and that its CPU quota covers."""
    try:
        n_allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not bind processes to cores
        n_allowed = os.cpu_count() or 1
    return max(1, min([n_allowed, *_cpu_quotas()]))


def usable_memory() -> int:
    """Return the bytes of memory of the machine, or of the container if that is less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        total = 8 * 2**30
    return min([total, *_memory_limits()])


def _cpu_quotas() -> Iterator[int]:
    """Yield the CPU quotas of all control groups of this process, in whole cores."""
    for group in _groups():  # version 2
        quota, _, period = _read(group / "cpu.max").partition(" ")
        yield from _cores(quota, period)
    for group in _groups("cpu"):  # version 1
        quota, period = (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        yield from _cores(quota, period)


def _cores(quota: str, period: str) -> Iterator[int]:
    """Yield the cores of one quota; "max" and -1 mean that there is none."""
    if quota.isdigit() and period.isdigit() and int(period):
        yield int(quota) // int(period)


def _memory_limits() -> Iterator[int]:
    files = [group / "memory.max" for group in _groups()]
    files += [group / "memory.limit_in_bytes" for group in _groups("memory")]
    yield from (int(text) for text in map(_read, files) if text.isdigit())


def _groups(controller: str = "") -> list[Path]:
    """Return the directories of the process's control group and of all groups above it.

    Every level can set a limit. Version 2 has one tree, version 1 one tree per `controller`. A
    container may see the path of its group on the host: then only the top directory exists.
    """
    root = _CGROUPS / controller
    for line in _read(_OWN_CGROUPS).splitlines():
        _, _, entry = line.partition(":")  # "4:cpu,cpuacct:/path", or "0::/path" in version 2
        controllers, _, path = entry.partition(":")
        if controller in controllers.split(",") and ".." not in path:
            own = PurePosixPath(path.lstrip("/"))
            return [root / own, *(root / above for above in own.parents)]
    return [root]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""

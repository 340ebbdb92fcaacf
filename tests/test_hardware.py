"""CPU and memory limits of containers: control groups (versions 1 and 2), nested or not."""

import pytest
import torch

from mtcli import hardware
from mtcli.hardware import thread_limit, usable_cores, usable_memory


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Return a function that writes a fake /sys/fs/cgroup; the machine has 64 cores and 64 GiB."""
    monkeypatch.setattr(hardware, "_CGROUPS", tmp_path / "sys")
    monkeypatch.setattr(hardware, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**24}.__getitem__)

    def write(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, content in files.items():
            path = tmp_path / "sys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    return write


@pytest.mark.parametrize(
    ("own", "files", "n_cores"),
    [
        ("", {}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("", {"cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000\n"}, 4),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "500000 100000\n"}, 5),
        ("0::/a/b\n", {"a/b/cpu.max": "900000 100000\n", "cpu.max": "600000 100000\n"}, 6),
        ("0::/../other\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/host/path\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "garbage\n"}, 64),
        ("0::/\n", {"cpu.max": "1 0\n"}, 64),
        (
            "4:cpu,cpuacct:/docker/x\n",
            {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        (
            "4:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "700000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            7,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
    ],
)
def test_the_lowest_cpu_quota_at_any_level_limits_the_cores(cgroups, own, files, n_cores):
    cgroups(own, files)
    assert usable_cores() == n_cores


@pytest.mark.parametrize(
    ("own", "files", "gibibytes"),
    [
        ("", {}, 64),
        ("0::/\n", {"memory.max": "max\n"}, 64),
        ("0::/\n", {"memory.max": f"{3 * 2**30}\n"}, 3),
        ("0::/a\n", {"a/memory.max": f"{2 * 2**30}\n", "memory.max": f"{3 * 2**30}\n"}, 2),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": f"{4 * 2**30}\n"}, 4),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 64),
    ],
)
def test_the_lowest_memory_limit_at_any_level_applies(cgroups, own, files, gibibytes):
    cgroups(own, files)
    assert usable_memory() == gibibytes * 2**30


def test_ctranslate2_uses_as_many_threads_as_the_quota_allows(cgroups, tiny_trained):
    from mtcli.config.search import EngineOptions
    from mtcli.translation.engines import open_engine

    cgroups("0::/\n", {"cpu.max": "300000 100000\n"})
    engine = open_engine(tiny_trained, EngineOptions(engine="ctranslate2", device="cpu")).engine
    assert engine.n_parallel == 3


@pytest.mark.parametrize(
    ("n_threads", "n_cores", "expected"), [(1, 64, 1), (None, 2, 2), (None, 9, 3)]
)
def test_training_threads_are_limited_by_the_option_or_the_quota(
    monkeypatch, n_threads, n_cores, expected
):
    monkeypatch.setattr(hardware, "usable_cores", lambda: n_cores)
    previous = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with thread_limit(n_threads):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(previous)

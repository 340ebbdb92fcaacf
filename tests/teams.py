"""Runs of several processes, started as torchrun does it, but without its start-up time."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

from mtcli.cli.team import reserved_port
from mtcli.config import Config
from processes import join

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["mtcli.training", "mtcli.engines.ct2"])


def train_together(config: Config, directory: Path, size: int) -> None:
    """Train with `size` processes; all of them must succeed."""
    work_together(train, size, config, directory)


def work_together(work: Callable[..., None], size: int, *arguments: object) -> None:
    """Let `size` processes do the same work; all of them must succeed."""
    with reserved_port() as port:
        processes = [
            _PROCESSES.Process(target=_run, args=(rank, size, port, work, *arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            join(process)
    assert [process.exitcode for process in processes] == [0] * size


def train(config: Config, directory: Path) -> None:
    """What each of them does."""
    from mtcli.training import train_run

    train_run(config, directory, lambda _: None)


def _run(rank: int, size: int, port: int, work: Callable[..., None], *arguments: object) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    work(*arguments)

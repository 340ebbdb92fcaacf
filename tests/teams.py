"""Runs of several processes, as torchrun would start them, but without waiting for torch."""

import multiprocessing
import os
import socket
from pathlib import Path

from mtcli.config import Config

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["mtcli.training", "mtcli.engines.ct2"])


def train_together(config: Config, directory: Path, size: int) -> None:
    """Train with `size` processes; all of them must succeed."""
    port = _free_port()
    processes = [
        _PROCESSES.Process(target=_run, args=(config, directory, rank, size, port))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * size


def _run(config: Config, directory: Path, rank: int, size: int, port: int) -> None:
    import torch

    from mtcli.training import train_run

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    train_run(config, directory, lambda _: None)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port

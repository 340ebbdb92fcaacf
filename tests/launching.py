"""Launch process groups with the environment of torchrun, but without its start-up time."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

from mtcli.cli.launcher import reserve_port
from mtcli.config.sections import Config
from processes import join

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["mtcli.training", "mtcli.translation.engines.ct2"])


def train_in_processes(config: Config, directory: Path, size: int) -> None:
    """Train with `size` processes; all of them must succeed."""
    run_in_processes(train, size, config, directory)


def run_in_processes(function: Callable[..., None], size: int, *arguments: object) -> None:
    """Call `function` in `size` processes; all of them must succeed."""
    with reserve_port() as port:
        processes = [
            _PROCESSES.Process(target=_run, args=(rank, size, port, function, *arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            join(process)
    assert [process.exitcode for process in processes] == [0] * size


def train(config: Config, directory: Path) -> None:
    """Train in this process, without output."""
    from mtcli.training.run import train_run

    train_run(config, directory, lambda _: None)


def _run(
    rank: int, size: int, port: int, function: Callable[..., None], *arguments: object
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    function(*arguments)

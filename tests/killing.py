"""Runs that are killed: in a process of their own, at a chosen write or at a chosen moment."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtcli.config import Config
from processes import join

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["mtcli.training", "mtcli.engines.ct2"])


def attempt(
    config: Config,
    directory: Path,
    *,
    at_write: int | None = None,
    seconds: float | None = None,
    first_is_best: bool = False,
) -> bool:
    """Start a run and kill it at its n-th write, or after some time; return whether it finished.

    With `first_is_best` no validation counts as better than the first one.
    """
    process = _PROCESSES.Process(target=_run, args=(config, directory, at_write, first_is_best))
    process.start()
    if seconds is not None:
        time.sleep(seconds)
        process.kill()  # unless it has ended by then
    join(process)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == 0


def _run(config: Config, directory: Path, at_write: int | None, first_is_best: bool) -> None:
    import torch

    from mtcli.training import course, train_run

    torch.set_num_threads(1)
    if first_is_best:
        course.is_better = lambda _score, _loss, progress: progress.best_score is None
    if at_write is not None:
        _install(Fate(at_write))
    train_run(config, directory, lambda _: None)


class Fate:
    """Counts writes, and kills the process at one of them: before it, in its middle, after it."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.n_writes = 0

    def around(self, write: Callable[..., Any], path_of: Callable[..., Path | None]) -> Any:
        """The function `write`, watched; `path_of` its arguments is what it writes to."""

        def watched(*arguments: Any, **options: Any) -> Any:
            self.n_writes += 1
            if self.n_writes != self.fatal:
                return write(*arguments, **options)
            match self.fatal % 3:
                case 1:
                    path = path_of(*arguments)
                    before = path.stat().st_size if path and path.is_file() else 0
                    write(*arguments, **options)
                    if path and path.is_file():  # half of what is new has come to the disk
                        os.truncate(path, (before + path.stat().st_size) // 2)
                case 2:
                    write(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            return None  # not in this life

        return watched


def _install(fate: Fate) -> None:
    """Watch all functions by which anything in a model directory is changed."""
    from mtcli.checkpoint import weights
    from mtcli.report import log

    def first(path: Any, *_: Any, **__: Any) -> Path | None:
        return Path(path) if isinstance(path, str | Path) else None

    def second(_: Any, path: Any, *__: Any) -> Path | None:
        return Path(path)

    def nothing(*_: Any, **__: Any) -> None:
        return None  # there is nothing that could be torn

    for name, path_of in (("write_bytes", first), ("replace", nothing), ("unlink", nothing)):
        setattr(Path, name, fate.around(getattr(Path, name), path_of))
    for name in ("touch", "chmod", "mkdir"):
        setattr(Path, name, fate.around(getattr(Path, name), nothing))
    os.fsync = fate.around(os.fsync, nothing)
    os.truncate = fate.around(os.truncate, nothing)
    shutil.rmtree = fate.around(shutil.rmtree, nothing)
    weights.save_file = fate.around(weights.save_file, second)
    log.append_bytes = fate.around(log.append_bytes, first)


def result(directory: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """What a run has led to: its weights, and its log without what a clock says."""
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    clocks = ("time", "seconds")
    events = [{k: v for k, v in json.loads(line).items() if k not in clocks} for line in lines]
    return (directory / "model.safetensors").read_bytes(), events

"""Train in a separate process and kill it at a given write or after a given time."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtcli.config.sections import Config
from processes import join

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    ["mtcli.training.run", "mtcli.translation.engines.ct2", "sacrebleu"]  # slow imports
)


def attempt(
    config: Config,
    directory: Path,
    *,
    at_write: int | None = None,
    seconds: float | None = None,
    first_is_best: bool = False,
) -> bool:
    """Start a run and kill it at write `at_write` or after `seconds`; return whether it finished.

    With `first_is_best`, no validation counts as better than the first one.
    """
    process = _PROCESSES.Process(target=_run, args=(config, directory, at_write, first_is_best))
    process.start()
    if seconds is not None:
        time.sleep(seconds)
        process.kill()  # no effect if it has already finished
    join(process)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == 0


def _run(config: Config, directory: Path, at_write: int | None, first_is_best: bool) -> None:
    import torch

    from mtcli.training import loop
    from mtcli.training.run import train_run

    torch.set_num_threads(1)
    if first_is_best:
        loop.is_better = lambda _score, _loss, progress: progress.best_score is None
    if at_write is not None:
        _install(KillAtWrite(at_write))
    train_run(config, directory, lambda _: None)


class KillAtWrite:
    """Counts writes, and kills the process before, during or after write number `at_write`."""

    def __init__(self, at_write: int) -> None:
        self.at_write = at_write
        self.n_writes = 0

    def wrap(self, write: Callable[..., Any], path_of: Callable[..., Path | None]) -> Any:
        """Return `write` with a call counter; `path_of` maps the arguments to the written path."""

        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.n_writes += 1
            if self.n_writes != self.at_write:
                return write(*arguments, **options)
            try:
                self._write(write, path_of(*arguments), arguments, options)
            finally:  # also if the write fails, for example because the directory exists
                os.kill(os.getpid(), signal.SIGKILL)

        return wrapped

    def _write(
        self,
        write: Callable[..., Any],
        path: Path | None,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """Write nothing, half of the new bytes, or everything."""
        match self.at_write % 3:
            case 1:
                old_size = path.stat().st_size if path and path.is_file() else 0
                write(*arguments, **options)
                if path and path.is_file():
                    os.truncate(path, (old_size + path.stat().st_size) // 2)
            case 2:
                write(*arguments, **options)


def _install(killer: KillAtWrite) -> None:
    """Wrap all functions that change files in a model directory."""
    from mtcli.model_dir import weights
    from mtcli.reporting import log
    from mtcli.training import preparation

    def first_argument(path: Any, *_: Any, **__: Any) -> Path | None:
        return Path(path) if isinstance(path, str | Path) else None

    def second_argument(_: Any, path: Any, *__: Any) -> Path | None:
        return Path(path)

    def ids_file(directory: Path, name: str, *_: Any) -> Path:
        return directory / f"{name}.source.ids"

    def no_path(*_: Any, **__: Any) -> None:
        return None  # the call cannot be interrupted halfway

    for name, path_of in (
        ("write_bytes", first_argument),
        ("write_text", first_argument),
        ("replace", no_path),
        ("unlink", no_path),
    ):
        setattr(Path, name, killer.wrap(getattr(Path, name), path_of))
    for name in ("touch", "chmod", "mkdir", "rename", "rmdir"):
        setattr(Path, name, killer.wrap(getattr(Path, name), no_path))
    os.fsync = killer.wrap(os.fsync, no_path)
    os.truncate = killer.wrap(os.truncate, no_path)
    shutil.rmtree = killer.wrap(shutil.rmtree, no_path)
    weights.save_file = killer.wrap(weights.save_file, second_argument)
    preparation.write_ids = killer.wrap(preparation.write_ids, ids_file)
    log.append_bytes = killer.wrap(log.append_bytes, first_argument)


def result(directory: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the weights of a run, and its log without timestamps and durations."""
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    time_fields = ("time", "seconds")
    events = [{k: v for k, v in json.loads(line).items() if k not in time_fields} for line in lines]
    return (directory / "model.safetensors").read_bytes(), events

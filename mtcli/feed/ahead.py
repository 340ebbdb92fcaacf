"""Preparing batches in the background, while the model is busy with the ones before."""

import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 0.1  # seconds after which a waiting side looks whether the other is still there


def prepared_ahead(items: Iterator[T], n: int = 4) -> Generator[T]:
    """`items`, of which up to `n` are made before they are asked for, in a thread of its own.

    What goes wrong there is raised here. Closing the iterator ends the thread.
    """
    ready: Queue[tuple[T | None, BaseException | None]] = Queue(maxsize=n)
    is_over = threading.Event()

    def offer(item: T | None, error: BaseException | None) -> None:
        while not is_over.is_set():
            with suppress(Full):
                ready.put((item, error), timeout=_PATIENCE)
                return

    def work() -> None:
        try:
            for item in items:
                offer(item, None)
                if is_over.is_set():
                    return
            offer(None, StopIteration())
        except BaseException as error:  # to be raised where it can be dealt with
            offer(None, error)

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = _next(ready, thread)
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]  # there is an item where there is no error
    finally:
        is_over.set()
        thread.join()


def _next(
    ready: Queue[tuple[T | None, BaseException | None]], thread: threading.Thread
) -> tuple[T | None, BaseException | None]:
    while True:
        try:
            return ready.get(timeout=_PATIENCE)
        except Empty:
            if not thread.is_alive() and ready.empty():
                raise RuntimeError("the thread that prepares batches has died") from None

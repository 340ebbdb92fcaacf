"""Background threads: prefetch batches, and map a function over blocks."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.1  # interval at which each thread checks whether the other one is running


def prefetch(items: Iterator[T], n: int = 4) -> Generator[T]:
    """Yield `items`; a background thread computes up to `n` of them in advance.

    The generator re-raises exceptions from the thread. Closing the generator ends the thread.
    """
    ready: Queue[tuple[T | None, BaseException | None]] = Queue(maxsize=n)
    is_closed = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not is_closed.is_set():
            with suppress(Full):
                ready.put((item, error), timeout=_POLL_SECONDS)
                return

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if is_closed.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:  # raised again in the consumer's thread
            put(None, error)

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = _get(ready, thread)
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]  # not None unless there is an error
    finally:
        is_closed.set()
        thread.join()


def map_in_threads(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Yield the results of `function` for all items in order, computed by several threads.

    Only a few items are read ahead, so `items` may be larger than memory.
    """
    with ThreadPoolExecutor(n_threads) as pool:
        pending: deque[Future[R]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _get(
    ready: Queue[tuple[T | None, BaseException | None]], thread: threading.Thread
) -> tuple[T | None, BaseException | None]:
    while True:
        try:
            return ready.get(timeout=_POLL_SECONDS)
        except Empty:
            if not thread.is_alive() and ready.empty():
                raise RuntimeError("the prefetching thread ended unexpectedly") from None

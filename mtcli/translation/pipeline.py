"""Processing of groups of lines: batches run in parallel, and results keep the input order."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

LINES_PER_GROUP = 2048  # enough lines to sort by length, but few enough to hold in memory
_QUEUED_PER_WORKER = 4  # queued batches keep the workers busy while the main thread prepares more
_MAX_QUEUED_GROUPS = 4

Wait = Callable[[], None]
OnProgress = Callable[[float], None]
ResultT = TypeVar("ResultT")


class Group(ABC, Generic[ResultT]):
    """Lines that are sorted by length and processed together."""

    @abstractmethod
    def start_batches(self) -> Iterator[Wait]:
        """Start the batches one by one; for each, yield a function that waits for its results."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether the results of all batches are available."""

    @abstractmethod
    def results(self) -> list[ResultT]:
        """Return the result of each line, in input order."""


def run_groups(groups: Iterable[Group[ResultT] | None], n_parallel: int) -> Iterator[list[ResultT]]:
    """Yield the results of each group; prepare the next group while the batches run.

    None in `groups` means that no more lines are available yet. In this case, all pending batches
    are finished before the next group is requested. `n_parallel` is the number of batches that run
    at the same time.
    """
    queue: deque[Group[ResultT]] = deque()
    pending: deque[Wait] = deque()
    for group in groups:
        if group is None:
            _finish(pending, 0)
        else:
            queue.append(group)
            for wait in group.start_batches():
                pending.append(wait)
                _finish(pending, _QUEUED_PER_WORKER * n_parallel)
            # Groups of blank lines have no batches, so the queue needs its own limit.
            if len(queue) > _MAX_QUEUED_GROUPS:
                _finish(pending, 0)
        while queue and queue[0].is_done:
            yield queue.popleft().results()
    _finish(pending, 0)
    for group in queue:
        yield group.results()


def _finish(pending: deque[Wait], n_left: int) -> None:
    """Wait for the oldest batches until at most `n_left` are pending."""
    while len(pending) > n_left:
        pending.popleft()()

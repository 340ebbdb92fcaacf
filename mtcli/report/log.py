"""log.jsonl: one JSON object per event, for programs."""

import json
import os
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mtcli.errors import CheckpointError
from mtcli.report.events import Event, Finished, RolledBack, Sample, StepDone, Validated

_NAMES = {
    "Notice": "notice",
    "StepDone": "step",
    "Validated": "validation",
    "RolledBack": "rollback",
    "Finished": "finished",
}
STEP_INTERVAL = 10  # every tenth step tells enough, and the same ones after resuming


class EventLog:
    """A file that grows by one line per event and can be cut back to where a checkpoint was."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Append `event`."""
        if isinstance(event, StepDone) and event.step % STEP_INTERVAL:
            return
        text = json.dumps(as_logged(event), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            append_bytes(self.path, text.encode())
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error.strerror}",
                hint="is the disk full, or was the directory removed? "
                "the same command goes on from what is there",
            ) from error

    def size(self) -> int:
        """Bytes written so far, all of them safe on disk."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def cut(self, size: int) -> None:
        """Forget what was written after the first `size` bytes."""
        if self.path.exists():
            os.truncate(self.path, min(size, self.path.stat().st_size))

    def finished(self) -> Finished | None:
        """The last event, if it says that the run is complete."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        last = _parsed(lines[-1]) if lines else {}
        if last.get("event") != _NAMES["Finished"]:
            return None
        # A log of an earlier version does not say whose weights (then, always those of the best),
        # nor what was learned from.
        last = {"weights": f"step {last.get('best_step')}", "data": "", **last}
        return Finished(**{field.name: last[field.name] for field in fields(Finished)})

    def past(self) -> tuple[StepDone | Validated | RolledBack, ...]:
        """What the run has gone through, as far as it is logged."""
        events = map(_as_event, read_events(self.path))
        return tuple(event for event in events if event)


def as_logged(event: Event) -> dict[str, Any]:
    """What the log says of `event`."""
    head = {"event": _NAMES[type(event).__name__], "time": round(time.time(), 3)}
    line = {**head, **asdict(event)}
    # Two runs of the same seed have the same log apart from times; memory is the machine's.
    line.pop("memory", None)
    return line


def append_bytes(path: Path, data: bytes) -> None:
    """Let a file grow."""
    with path.open("ab") as file:
        file.write(data)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The lines of a log.jsonl, without one that a kill has torn; none if there is no file."""
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return [event for event in map(_parsed, lines) if event]


def _as_event(line: dict[str, Any]) -> StepDone | Validated | RolledBack | None:
    """The event that `as_logged` has made a line of, if it is one of a run's course."""
    facts = {key: value for key, value in line.items() if key not in ("event", "time")}
    try:
        match line.get("event"):
            case "step":
                return StepDone(**facts)
            case "validation":
                samples = tuple(Sample(**sample) for sample in facts.pop("samples"))
                return Validated(**facts, samples=samples)
            case "rollback":
                return RolledBack(**facts)
    except (KeyError, TypeError):  # of another version of mtcli, which knew other facts
        return None
    return None


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}

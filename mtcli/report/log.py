"""log.jsonl: one JSON object per event, for programs."""

import json
import os
import time
from dataclasses import asdict, fields
from pathlib import Path

from mtcli.errors import CheckpointError
from mtcli.report.events import Event, Finished, StepDone

_NAMES = {
    "Notice": "notice",
    "StepDone": "step",
    "Validated": "validation",
    "Finished": "finished",
}
_STEP_INTERVAL = 10  # every tenth step tells enough, and the same ones after resuming


class EventLog:
    """A file that grows by one line per event and can be cut back to where a checkpoint was."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Append `event`."""
        if isinstance(event, StepDone) and event.step % _STEP_INTERVAL:
            return
        line = {"event": _NAMES[type(event).__name__], "time": round(time.time(), 3)}
        text = json.dumps({**line, **asdict(event)}, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            with self.path.open("ab") as file:
                file.write(text.encode())
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path}: {error.strerror}") from error

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
        try:
            last = json.loads(lines[-1]) if lines else {}
        except ValueError:  # a line that a kill has torn
            return None
        if not isinstance(last, dict) or last.get("event") != _NAMES["Finished"]:
            return None
        return Finished(**{field.name: last[field.name] for field in fields(Finished)})

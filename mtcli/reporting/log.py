"""`log.jsonl`: the events of a run, one JSON object per line."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from mtcli.errors import CheckpointError
from mtcli.reporting.events import (
    MAIN_METRIC,
    Event,
    Finished,
    RolledBack,
    Sample,
    Score,
    Scores,
    SetScores,
    StepDone,
    Validated,
)
from mtcli.reporting.messages import metric_label

LogEntry = Mapping[str, Any]

# Event names in the log. The format has no version number: readers skip unknown entries and accept
# entries from earlier versions that lack fields. New names and fields may be added, but existing
# ones must not be renamed.
_NAMES = {
    "Notice": "notice",
    "StepDone": "step",
    "Validated": "validation",
    "RolledBack": "rollback",
    "Finished": "finished",
}
# Fields of a validation's log entry that are not scores.
_OTHER_FIELDS = {"event", "time", "signature", *(field.name for field in fields(Validated))}
STEP_INTERVAL = 10  # log every tenth step by number, so that a resumed run logs the same steps


class EventLog:
    """Append-only event file that can be truncated to its size at a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Append `event`; skip steps that are not multiples of `STEP_INTERVAL`."""
        if isinstance(event, StepDone) and event.step % STEP_INTERVAL:
            return
        text = json.dumps(as_logged(event), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            append_bytes(self.path, text.encode())
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error.strerror}",
                hint="check that the disk has free space and the directory still exists; "
                "then run the same command again to resume",
            ) from error

    def size(self) -> int:
        """Flush the log to disk and return its size in bytes."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def truncate(self, size: int) -> None:
        """Drop everything after the first `size` bytes."""
        if self.path.exists():
            os.truncate(self.path, min(size, self.path.stat().st_size))

    def read_finished(self) -> Finished | None:
        """Return the `finished` event if it ends the log; None if the run is not complete."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        last = _parse_line(lines[-1]) if lines else {}
        if last.get("event") != _NAMES["Finished"]:
            return None
        # Logs from earlier versions lack `weights` (always those of the best step) and `data`. Only
        # runs with several dev sets have `sets`.
        last = {"weights": f"step {last.get('best_step')}", "data": "", "sets": {}, **last}
        return Finished(**{field.name: last[field.name] for field in fields(Finished)})

    def read_history(self) -> tuple[StepDone | Validated | RolledBack, ...]:
        """Return the logged steps, validations and rollbacks."""
        events = map(_as_event, read_events(self.path))
        return tuple(event for event in events if event)


def as_logged(event: Event) -> dict[str, Any]:
    """Return the log entry for `event`."""
    entry = {"event": _NAMES[type(event).__name__], "time": round(time.time(), 3)}
    for key, value in asdict(event).items():
        if isinstance(event, Validated) and key == "scores":
            entry |= _as_fields(event.scores)
        elif isinstance(event, Validated) and key == "sets":
            entry |= {"sets": [_set_as_fields(s) for s in event.sets]} if event.sets else {}
        elif key == "sets" and not value:
            continue  # only one dev set
        # Omit memory use: logs of runs with the same seed must differ only in times.
        elif key != "memory":
            entry[key] = value
    return entry


def _as_fields(scores: Scores) -> dict[str, Any]:
    """Return the log fields for a validation's scores: all values, and the BLEU signature."""
    values = {name: score.value for name, score in scores.items()}
    return {**values, "signature": scores[MAIN_METRIC].signature}


def _set_as_fields(scored: SetScores) -> dict[str, Any]:
    values = {name: score.value for name, score in scored.scores.items()}
    return {"name": scored.name, "loss": scored.loss, **values}


def logged_sets(entry: LogEntry) -> list[SetScores]:
    """Return the scores of each dev set in a validation's log entry; empty if there is only one."""
    sets = entry.get("sets")
    return [
        SetScores(
            str(each.get("name", "")),
            finite_number(each, "loss") or 0.0,
            {
                name: Score(metric_label(name), value, signature="")
                for name, value in logged_scores(each).items()
            },
        )
        for each in (sets if isinstance(sets, list) else [])
        if isinstance(each, dict)
    ]


def expand_sets(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the entries with the main score of each dev set added as a separate field."""
    label = metric_label(MAIN_METRIC)
    return [
        {
            **entry,
            **{
                f"{label} ({scored.name})": scored.scores[MAIN_METRIC].value
                for scored in logged_sets(entry)
                if MAIN_METRIC in scored.scores
            },
        }
        for entry in entries
    ]


def logged_scores(entry: LogEntry) -> dict[str, float]:
    """Return the score of each metric in a validation's log entry."""
    numbers = {name: finite_number(entry, name) for name in entry if name not in _OTHER_FIELDS}
    return {name: value for name, value in numbers.items() if value is not None}


def append_bytes(path: Path, data: bytes) -> None:
    """Append `data` to a file."""
    with path.open("ab") as file:
        file.write(data)


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log, skipping incomplete lines; empty if the file is missing."""
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}", hint="check that the file is readable"
        ) from error
    return [event for event in map(_parse_line, lines) if event]


def finite_number(entry: LogEntry, key: str) -> float | None:
    """Return the value of `key`; None if it is missing, as in older logs, or not finite."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def select_entries(entries: Sequence[LogEntry], name: str) -> list[LogEntry]:
    """Return the entries of one kind: notice, step, validation, rollback or finished."""
    return [entry for entry in entries if entry.get("event") == name]


def drop_undone_entries(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the entries without the steps and validations that a rollback has undone."""
    kept: list[LogEntry] = []
    for entry in entries:
        to_step = finite_number(entry, "to_step")
        if entry.get("event") == "rollback" and to_step is not None:
            kept = [earlier for earlier in kept if not _is_undone(earlier, to_step)]
        kept.append(entry)
    return kept


def _is_undone(entry: LogEntry, to_step: float) -> bool:
    step = finite_number(entry, "step")
    is_training = entry.get("event") in ("step", "validation")
    return is_training and step is not None and step > to_step


def _as_event(entry: dict[str, Any]) -> StepDone | Validated | RolledBack | None:
    """Return the step, validation or rollback in a log entry; None for other entries."""
    values = {key: value for key, value in entry.items() if key not in ("event", "time")}
    try:
        match entry.get("event"):
            case "step":
                return StepDone(**values)
            case "validation":
                return _as_validated(entry)
            case "rollback":
                return RolledBack(**values)
    except (KeyError, TypeError):  # written by a version of mtcli with different fields
        return None
    return None


def _as_validated(entry: LogEntry) -> Validated:
    scores = {
        name: Score(metric_label(name), value, signature="")
        for name, value in logged_scores(entry).items()
    }
    scores[MAIN_METRIC] = replace(scores[MAIN_METRIC], signature=entry["signature"])
    return Validated(
        step=entry["step"],
        loss=entry["loss"],
        scores=scores,
        is_best=entry["is_best"],
        seconds=entry["seconds"],
        samples=tuple(Sample(**sample) for sample in entry["samples"]),
        sets=tuple(logged_sets(entry)),
    )


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}

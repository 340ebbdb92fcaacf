"""What happens during training, told to people and to programs."""

from mtcli.report.display import Display, LiveDisplay, PlainDisplay, open_display
from mtcli.report.events import Event, Finished, Notice, Sample, StepDone, Stopped, Validated
from mtcli.report.log import EventLog

__all__ = [
    "Display",
    "Event",
    "EventLog",
    "Finished",
    "LiveDisplay",
    "Notice",
    "PlainDisplay",
    "Sample",
    "StepDone",
    "Stopped",
    "Validated",
    "open_display",
]

"""What happens during training, told to people and to programs."""

from mtcli.report.display import Display, TolerantDisplay, open_display
from mtcli.report.events import (
    Activity,
    Event,
    Finished,
    Notice,
    Resumed,
    RolledBack,
    Sample,
    StepDone,
    Stopped,
    Validated,
)
from mtcli.report.html import report_html
from mtcli.report.live import LiveDisplay
from mtcli.report.log import EventLog, as_logged, read_events
from mtcli.report.plain import PlainDisplay

__all__ = [
    "Activity",
    "Display",
    "Event",
    "EventLog",
    "Finished",
    "LiveDisplay",
    "Notice",
    "PlainDisplay",
    "Resumed",
    "RolledBack",
    "Sample",
    "StepDone",
    "Stopped",
    "TolerantDisplay",
    "Validated",
    "as_logged",
    "open_display",
    "read_events",
    "report_html",
]

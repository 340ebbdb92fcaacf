"""report.html: the course of a run, for people."""

import os
import platform
from importlib.metadata import version

import torch

from mtcli import __version__
from mtcli.checkpoint.directory import CONFIG, LOG, REPORT
from mtcli.checkpoint.files import write_file
from mtcli.report import Event, as_logged, read_events, report_html
from mtcli.training.setup import Run

_LIBRARIES = ("sentencepiece", "sacrebleu", "ctranslate2")


def write_report(run: Run, *news: Event) -> None:
    """Write report.html anew from the log as it stands, and from what is about to be logged."""
    config_yaml = (run.directory / CONFIG).read_text(encoding="utf-8")
    events = [*read_events(run.directory / LOG), *map(as_logged, news)]
    page = report_html(events, config_yaml, environment(run))
    write_file(run.directory / REPORT, page)


def environment(run: Run) -> dict[str, str]:
    """What the run runs on."""
    device = run.learner.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "mtcli": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in _LIBRARIES},
        "system": f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores",
        "device": gpu or str(device),
        "processes": f"{run.processes.size} with {torch.get_num_threads()} threads each",
    }

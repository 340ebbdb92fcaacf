"""Options for evaluation reports."""

from dataclasses import dataclass
from pathlib import Path

from mtcli.errors import OptionsError

DEFAULT_MAPS, MAX_MAPS = 60, 200  # lines with an attention map


@dataclass(frozen=True)
class ReportOptions:
    """Path of an evaluation report, and the lines to show with an attention map."""

    path: Path
    n_maps: int = DEFAULT_MAPS  # number of lines that mtcli chooses
    map_lines: tuple[int, ...] = ()  # 1-based line numbers; if set, they replace mtcli's choice

    def __post_init__(self) -> None:
        if not 0 <= self.n_maps <= MAX_MAPS:
            raise OptionsError(f"maps={self.n_maps} is out of range: must be 0 to {MAX_MAPS}")
        if len(self.map_lines) > MAX_MAPS:
            raise OptionsError(
                f"{len(self.map_lines)} values of map_line: at most {MAX_MAPS} are allowed"
            )
        if any(line < 1 for line in self.map_lines):
            raise OptionsError("map_line must be at least 1: lines are counted from 1")

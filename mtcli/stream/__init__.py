"""The line contract: n lines in, n lines out, in order, whatever they contain."""

from mtcli.stream.formats import Formats
from mtcli.stream.lines import Input
from mtcli.stream.output import Output
from mtcli.stream.progress import Progress, total_size
from mtcli.stream.run import Tally, translate_stream

__all__ = ["Formats", "Input", "Output", "Progress", "Tally", "total_size", "translate_stream"]

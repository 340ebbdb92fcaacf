"""The line contract: n lines in, n lines out, in order, whatever they contain."""

from mtcli.stream.formats import Formats
from mtcli.stream.lines import Input
from mtcli.stream.output import Output
from mtcli.stream.run import Tally, translate_stream

__all__ = ["Formats", "Input", "Output", "Tally", "translate_stream"]

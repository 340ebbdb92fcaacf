"""`mtcli compare`: compare runs of different architectures on one test set."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli import options as opts
from mtcli.cli import report_options as report_opts
from mtcli.cli.base import Command, Quiet, SourceLang, Tag, TargetLang, To, app
from mtcli.cli.evaluate import make_listener
from mtcli.cli.metric_options import AsJson
from mtcli.cli.usage import name_options_in_errors
from mtcli.config.report import DEFAULT_MAPS
from mtcli.config.search import EngineOptions


@app.command(
    cls=Command,
    epilog="Example: mtcli compare runs/my-model runs/demo data/demo/long.en data/demo/long.de",
)
def compare(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... SOURCE REFERENCE...",
            help="Two or more model directories, then the test set: source and reference files, "
            "or a corpus in another format.",
        ),
    ],
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    to: To = None,
    tag: Tag = None,
    as_json: AsJson = False,
    report: report_opts.Report = None,
    quiet: Quiet = False,
    maps: report_opts.Maps = DEFAULT_MAPS,
    map_line: report_opts.MapLines = [],
    beam_size: opts.BeamSize = None,
    length_penalty: opts.LengthPenalty = None,
    engine: opts.EngineName = "auto",
    quantization: opts.Quantization = None,
    threads: opts.Threads = None,
    device: opts.Device = "auto",
) -> None:
    """Compare the quality, size, training cost and speed of runs on one test set.

    The first run is the baseline. Scores are also shown by source length. The
    training time and the number of tokens come from the logs of the runs. To
    compare the speed of architectures, use the same engine for all of them,
    such as --engine torch.
    """
    runs, files = _split(arguments)
    report_options = report_opts.read_report_options(report, maps, map_line)
    engine_options = EngineOptions(
        engine=engine, device=device, quantization=quantization, threads=threads
    )
    opts.check_engine_options(engine_options)
    typed = {"beam_size": beam_size, "length_penalty": length_penalty}
    search = {name: value for name, value in typed.items() if value is not None}
    with name_options_in_errors(typed):
        from mtcli.data.formats.base import Languages
        from mtcli.evaluation.request import EvaluationRequest
        from mtcli.evaluation.run_comparison import compare_runs

        request = EvaluationRequest(
            models=runs,
            files=files,
            languages=Languages(source_lang, target_lang),
            engine=engine_options,
            search=search,
            to=to,
            tag=tag,
        )
        listener = make_listener(is_quiet=quiet)
        result = compare_runs(request, listener)
    typer.echo(result.to_json() if as_json else str(result))
    if report_options:
        from mtcli.evaluation.write_report import write_comparison

        write_comparison(result, request, report_options, listener.notify)


def _split(arguments: list[str]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the runs (model directories) and the test-set files that follow them."""
    from mtcli.model_dir.directory import is_run

    are_runs = [is_run(Path(argument)) for argument in arguments]
    n_runs = max((i + 1 for i, found in enumerate(are_runs) if found), default=0)
    if n_runs < 2:
        others = [name for name, found in zip(arguments, are_runs, strict=True) if not found]
        detail = f"; {others[0]} is not a model directory" if others else ""
        raise typer.BadParameter(
            f"expected two or more model directories, then SOURCE REFERENCE{detail}"
        )
    if n_runs == len(arguments):
        raise typer.BadParameter("expected SOURCE REFERENCE after the model directories")
    return tuple(map(Path, arguments[:n_runs])), tuple(arguments[n_runs:])

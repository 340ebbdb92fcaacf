"""The mean of several models of one kind, as a model of its own."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from mtcli.checkpoint.directory import (
    WEIGHTS,
    WeightsInfo,
    checkpoint_paths,
    is_run,
    load_saved_config,
    save_config,
    weights_info,
)
from mtcli.checkpoint.files import write_file
from mtcli.checkpoint.state import DAMAGE, kept_steps, load_checked, weights_path
from mtcli.checkpoint.weights import load_into, load_weights, mean_of, save_weights
from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.models import build_model
from mtcli.tokenizer import load_tokenizers


def average_models(models: Sequence[Path], out: Path) -> WeightsInfo:
    """Write the mean of the weights of `models` to the new directory `out`.

    Of a single run it is the mean of the validated weights that it has kept.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} already exists", hint="choose another --out")
    for path in models:
        load_saved_config(path)  # refuses a directory that is no model
    infos = [weights_info(model) for model in models]  # refuses what is missing or damaged
    weights = [load_weights(model) for model in models]
    first = models[0]
    for other in models[1:]:
        _check_alike(first, other)
    files = _kept(first) if len(models) == 1 else [model / WEIGHTS for model in models]
    config, tokenizers = load_saved_config(first), load_tokenizers(first)
    if len(models) == 1:
        weights = [_kept_weights(path) for path in files]
    model = build_model(config.model, len(tokenizers.source), len(tokenizers.target))
    for path, tensors in zip(files, weights, strict=True):
        load_into(model, tensors.items(), origin=path)  # refuses what does not fit
    info = WeightsInfo(
        n_parameters=infos[0].n_parameters,
        step=max(info.step for info in infos),
        bleu=None,
        signature="",
        n_pairs=max(info.n_pairs for info in infos),
        weights=f"the mean of {len(files)} {'models' if len(models) > 1 else 'validations'}",
    )
    save_config(out, config)
    for name, content in tokenizers.files().items():
        write_file(out / name, content)
    save_weights(out, mean_of(weights), info)
    return info


def _kept_weights(path: Path) -> dict[str, Tensor]:
    """Return weights that a run has kept; raise `CheckpointError` if they have changed."""
    try:
        return load_checked(path)[1]
    except DAMAGE as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint=COPY_AGAIN) from error


def _check_alike(first: Path, other: Path) -> None:
    """Only numbers that mean the same have a mean."""
    if load_saved_config(first).model != load_saved_config(other).model:
        raise CheckpointError(f"{other} has another architecture than {first}")
    if load_tokenizers(first).files() != load_tokenizers(other).files():
        raise CheckpointError(f"{other} has another vocabulary than {first}")


def _kept(run: Path) -> list[Path]:
    if not is_run(run):
        load_saved_config(run)  # says what is wrong with it
    # Older checkpoints may count others, which are there for going back to them.
    steps = [kept_steps(path) for path in checkpoint_paths(run)[-1:]]
    paths = [weights_path(run, step) for kept in steps for step in kept]
    if len(paths) < 2:
        raise CheckpointError(
            f"{run} has kept no validated weights to average",
            hint="name two or more models, or train with --set train.average=5",
        )
    return paths

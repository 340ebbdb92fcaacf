"""Average the weights of several models, or the weights from several validations of one run."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from mtcli.errors import COPY_AGAIN, CheckpointError
from mtcli.files import write_file
from mtcli.model_dir.checkpoints import (
    READ_ERRORS,
    load_with_checksum,
    steps_to_average,
    weights_path,
)
from mtcli.model_dir.directory import (
    WeightsInfo,
    checkpoint_paths,
    load_saved_config,
    save_config,
    weights_info,
)
from mtcli.model_dir.layout import WEIGHTS, WORD_COUNTS
from mtcli.model_dir.weights import average_weights, load_into, load_weights, save_weights
from mtcli.models import build_model
from mtcli.tokenizer import load_tokenizers


def average_models(models: Sequence[Path], out: Path) -> WeightsInfo:
    """Write the average of `models` to the new directory `out`; return its metadata.

    If `models` contains only one run, average the weights that it kept from its validations.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} already exists", hint="choose another --out")
    for path in models:
        load_saved_config(path)  # raises an error if `path` is not a model directory
    infos = [weights_info(model) for model in models]  # raises an error for damaged weights
    weights = [load_weights(model) for model in models]
    first = models[0]
    for other in models[1:]:
        _check_compatible(first, other)
    files = _kept_weights_paths(first) if len(models) == 1 else [m / WEIGHTS for m in models]
    config, tokenizers = load_saved_config(first), load_tokenizers(first)
    if len(models) == 1:
        weights = [_load_kept_weights(path) for path in files]
    model = build_model(
        config.model, len(tokenizers.source), len(tokenizers.target), tokenizers.special
    )
    for path, tensors in zip(files, weights, strict=True):
        load_into(model, tensors.items(), origin=path)  # raises an error if the shapes differ
    info = WeightsInfo(
        n_parameters=infos[0].n_parameters,
        step=max(info.step for info in infos),
        bleu=None,
        signature="",
        n_pairs=max(info.n_pairs for info in infos),
        weights=f"the mean of {len(files)} {'models' if len(models) > 1 else 'checkpoints'}",
    )
    save_config(out, config)
    for name, content in tokenizers.files().items():
        write_file(out / name, content)
    counts = {(m / WORD_COUNTS).read_bytes() for m in models if (m / WORD_COUNTS).is_file()}
    if len(counts) == 1:  # the models have the same word counts
        write_file(out / WORD_COUNTS, counts.pop())
    save_weights(out, average_weights(weights), info)
    return info


def _check_compatible(first: Path, other: Path) -> None:
    """Raise `CheckpointError` if two models differ in architecture or vocabulary."""
    hint = "average models with the same architecture and the same vocabulary"
    if load_saved_config(first).model != load_saved_config(other).model:
        raise CheckpointError(f"{other} and {first} have different architectures", hint=hint)
    if load_tokenizers(first).files() != load_tokenizers(other).files():
        raise CheckpointError(f"{other} and {first} have different vocabularies", hint=hint)


def _kept_weights_paths(run: Path) -> list[Path]:
    """Return the paths of the weights that the latest checkpoint of `run` lists for averaging."""
    # Older checkpoints may list other weights, but only a rollback needs those.
    steps = [step for path in checkpoint_paths(run)[-1:] for step in steps_to_average(path)]
    if len(steps) < 2:
        raise CheckpointError(
            f"{run} contains fewer than two sets of weights to average",
            hint="specify two or more models, or train with --set train.average=5",
        )
    return [weights_path(run, step) for step in steps]


def _load_kept_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in `path`; raise `CheckpointError` if the file is damaged."""
    try:
        return load_with_checksum(path)[1]
    except READ_ERRORS as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint=COPY_AGAIN) from error

"""Quantization of exported weights."""

from typing import Any

import numpy as np
from ctranslate2.specs.model_spec import LayerSpec, NumpyVariable, visit_spec
from numpy.typing import NDArray

_LARGEST_INT8 = 127


def quantize(spec: LayerSpec, quantization: str) -> None:
    """Quantize the weights of a validated `spec` in place."""
    is_int8 = quantization == "int8"
    spec.optimize(None if is_int8 or quantization == "float32" else quantization)
    if is_int8:
        visit_spec(spec, _quantize_variable)


def quantize_rows(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return `weight` [rows, columns] as int8, and the scale of each row.

    CPUs without VNNI add the products of two neighboring columns in saturating 16-bit arithmetic
    (`vpmaddubsw`). CTranslate2 shifts activations to 0..255, so two neighboring weights of the same
    sign may sum to at most 128, because 255 * 128 < 2**15. The scale therefore limits this sum to 7
    bits, whereas CTranslate2's converter limits only single weights. This costs a fraction of a bit
    of precision.
    """
    largest = np.maximum(_largest_pair_sum(weight), _largest_pair_sum(-weight))  # [rows]
    smallest = _LARGEST_INT8 / np.finfo(np.float32).max  # keeps the scale finite
    divisor = np.where(largest > 0, np.maximum(largest, smallest), _LARGEST_INT8)
    scale: NDArray[np.float32] = (_LARGEST_INT8 / divisor).astype(np.float32)
    return np.rint(weight * scale[:, None]).astype(np.int8), scale


def _largest_pair_sum(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest sum of two neighbors in each row, with negative weights set to 0."""
    padded = np.pad(np.maximum(weight, 0), ((0, 0), (0, 1)))
    sums: NDArray[np.float32] = (padded[:, :-1] + padded[:, 1:]).max(axis=1)
    return sums


def _quantize_variable(layer: LayerSpec, name: str, value: Any) -> None:
    key = name.rpartition("/")[2]
    if isinstance(value, NumpyVariable) and hasattr(layer, f"{key}_scale"):
        weight, scale = quantize_rows(value.numpy())
        setattr(layer, key, NumpyVariable(weight))
        setattr(layer, f"{key}_scale", NumpyVariable(scale))

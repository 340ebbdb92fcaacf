"""Comparison of systems with a baseline, using a paired significance test."""

from collections.abc import Mapping, Sequence
from typing import Any

from mtcli.config.metrics import TestOptions
from mtcli.evaluation.results import Comparison, Difference, SystemResult
from mtcli.evaluation.significance import (
    StatisticsTable,
    bootstrap_p_value,
    randomization_p_value,
)

Samples = Sequence[Mapping[str, Any]]  # for each system, its scores by metric


def compare_systems(
    systems: Sequence[SystemResult],
    table: StatisticsTable,
    test: TestOptions,
    resampled: Samples | None = None,
) -> Comparison:
    """Return a paired significance test of each system against the first one.

    `resampled` contains the bootstrap scores of the systems, if they have already been computed
    with the number of trials and the seed in `test`.
    """
    if test.method == "bootstrap":
        samples = resampled or table.bootstrap(test.n_trials, test.seed)
    else:
        # `randomize` returns no entry for the baseline, so add an empty one.
        samples = [{}, *table.randomize(test.n_trials, test.seed)]
    differences = []
    for system, found in zip(systems[1:], samples[1:], strict=True):
        for name in table.metrics:
            difference = system.scores[name].value - systems[0].scores[name].value
            p_value = (
                bootstrap_p_value(samples[0][name], found[name], difference)
                if test.method == "bootstrap"
                else randomization_p_value(found[name], difference)
            )
            differences.append(Difference(system.name, name, difference, p_value))
    return Comparison(
        baseline=systems[0].name,
        method=test.method,
        n_trials=test.n_trials,
        seed=test.seed,
        signatures=_signatures(table.metrics, test),
        differences=tuple(differences),
    )


def _signatures(metrics: Mapping[str, Any], test: TestOptions) -> dict[str, str]:
    """Return the signature of each metric, with the seed and the number of trials of the test.

    For approximate randomization, a signature also contains the number of bootstrap resamples for
    the confidence intervals, if there are any.
    """
    found = {}
    for name, metric in metrics.items():
        signature = metric.get_signature()
        signature.update("seed", test.seed)
        signature.update("bs" if test.method == "bootstrap" else "ar", test.n_trials)
        found[name] = str(signature)
    return found

"""Time budget: time a few steps to estimate how many fit into `train.minutes`."""

import time
from contextlib import closing

from mtcli.config.sections import Config
from mtcli.data.batches import DataPosition
from mtcli.errors import ConfigError
from mtcli.training.dataset import Dataset
from mtcli.training.loop import fit
from mtcli.training.run_state import RunContext, build_run

# Timing stops after this share of the budget or this many seconds, whichever comes first.
_TIMING_SHARE, _MAX_TIMING_SECONDS = 0.02, 30.0
_MIN_STEPS = 4  # minimum number of steps to time (after the slow first step) and to train
_MAX_FINISH_SHARE = 0.1  # of the budget; the estimate below is too high for short runs
_EXAMPLE_STEPS = 100  # for the hint in the error message
_USABLE_SHARE = 0.99  # share of the budget that is planned; the rest is for delays
# Time to choose the weights and alignment heads, build the shortlist and export the model.
_FINISH_SECONDS, _FINISH_SECONDS_PER_PAIR = 10.0, 5e-6


def estimate_steps(config: Config, context: RunContext, data: Dataset) -> int:
    """Return how many steps fit into `config.train.minutes`, including validations.

    The timed steps use a temporary model, so that the trained weights depend only on the seed and
    the number of steps. All processes get the same number.
    """
    seconds = (config.train.minutes or 0.0) * 60
    run = build_run(config, context, data)
    start = time.perf_counter()
    step_times: list[float] = []
    with closing(run.train_step), closing(run.groups_from(DataPosition())) as groups:
        for step in fit(run.train_step, groups):
            if step.number > 1:
                step_times.append(step.seconds)
            elapsed = time.perf_counter() - start
            is_enough = elapsed > min(_TIMING_SHARE * seconds, _MAX_TIMING_SECONDS)
            if context.processes.broadcast(is_enough and len(step_times) >= _MIN_STEPS):
                break
    validation = run.time_validation()
    step_seconds = sum(step_times) / len(step_times) + validation / config.train.validate_every
    finish = _FINISH_SECONDS + _FINISH_SECONDS_PER_PAIR * data.n_pairs + validation
    finish = min(finish, _MAX_FINISH_SHARE * seconds)
    overhead = time.monotonic() - context.started_at + validation + finish
    steps = context.processes.broadcast(int((seconds * _USABLE_SHARE - overhead) / step_seconds))
    if steps < _MIN_STEPS:
        minutes = (overhead + _EXAMPLE_STEPS * step_seconds) / _USABLE_SHARE / 60
        raise ConfigError(
            f"train.minutes={config.train.minutes:g} is too short: after setup and validation, "
            f"there is time for fewer than {_MIN_STEPS} steps",
            hint=f"allow about {minutes:.2g} minutes for {_EXAMPLE_STEPS} steps",
        )
    return steps

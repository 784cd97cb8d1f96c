"""Proposals for the next settings of a search, by Optuna's Tree-structured Parzen Estimator.

Bergstra, Bardenet, Bengio, Kegl, "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; Akiba, Sano, Yanase,
Ohta, Koyama, "Optuna", KDD 2019. Proposals depend only on the outcomes so far and on the seed of the search, so that a
repeated search makes the same proposals.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fednet_emu.errors import FednetError
from fednet_emu.study.search.space import Parameter, Point, Range, Value

STARTUP = 10
"""Number of trials with random settings, before proposals depend on outcomes."""
TRIES = 50
"""Maximum number of draws per requested point. If they do not give enough new points, the next sampler is used, or
fewer points are returned."""


def require_optuna() -> Any:
    """Return the module `optuna`.

    Raises:
        FednetError: Optuna is not installed.
    """
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise FednetError("search: Optuna is not installed; pip install 'fednet-emu[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def proposals(
    parameters: Sequence[Parameter],
    known: Sequence[tuple[Point, Sequence[float]]],
    count: int,
    seed: int,
    startup: int = STARTUP,
) -> list[Point]:
    """Return `count` new points of the search space to try; fewer if the space is exhausted.

    `known` lists all points tried so far with their objectives. The first `startup` points are random.
    """
    optuna = require_optuna()
    seen = {_key(point) for point, _ in known}
    found: list[Point] = []
    objectives = len(known[0][1]) if known else 1
    own_seed, spare_seed = map(int, np.random.SeedSequence([seed, len(known)]).generate_state(2))
    samplers = (
        optuna.samplers.TPESampler(seed=own_seed, n_startup_trials=startup, constant_liar=True),
        optuna.samplers.RandomSampler(seed=spare_seed),
    )
    for sampler in samplers:
        study = study_of(parameters, known, objectives, sampler)
        for _ in range(TRIES * count):
            if len(found) == count:
                return found
            point = _drawn(parameters, study.ask())
            if _key(point) not in seen:
                seen.add(_key(point))
                found.append(point)
    return found


def study_of(
    parameters: Sequence[Parameter],
    known: Sequence[tuple[Point, Sequence[float]]],
    objectives: int,
    sampler: Any = None,
) -> Any:
    """Return an in-memory study of Optuna that contains the points in `known` with their objectives."""
    optuna = require_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
    by_name = {parameter.name: parameter for parameter in parameters}
    for point, values in known:
        spread = {name: _distribution(optuna, by_name[name]) for name in point}
        study.add_trial(optuna.trial.create_trial(params=dict(point), distributions=spread, values=list(values)))
    return study


def importance(parameters: Sequence[Parameter], known: Sequence[tuple[Point, Sequence[float]]]) -> dict[str, float]:
    """Return the share (0 to 1) of the variance of the first objective that each parameter explains, by parameter name.

    The method is fANOVA (Hutter, Hoos, Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance",
    ICML 2014). The share of a conditional parameter is computed from the trials that vary this parameter. The result is
    empty if there are fewer than four trials, or if all have the same objective.
    """
    optuna = require_optuna()
    always = [parameter.name for parameter in parameters if not parameter.when]
    shares: dict[str, float] = {}
    for group in ([], *([parameter.name] for parameter in parameters if parameter.when)):
        names = [*always, *group]
        part = [(point, values) for point, values in known if all(name in point for name in names)]
        if len(part) < 4 or len({values[0] for _, values in part}) == 1:
            continue
        study = study_of(parameters, [(point, values[:1]) for point, values in part], 1)
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found: Mapping[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)
        shares |= {name: float(found[name]) for name in (group or names) if name in found}
    return dict(sorted(shares.items(), key=lambda its: -its[1]))


def _drawn(parameters: Sequence[Parameter], trial: Any) -> Point:
    point: dict[str, Value] = {}
    for parameter in parameters:
        if not parameter.applies(point):
            continue
        values = parameter.values
        if not isinstance(values, Range):
            point[parameter.name] = trial.suggest_categorical(parameter.name, list(parameter.ends))
        elif values.whole:
            step = int(values.step or 1)
            drawn = trial.suggest_int(parameter.name, int(values.low), int(values.high), step=step, log=values.log)
            point[parameter.name] = values.rounded(drawn)
        else:
            low, high = float(values.low), float(values.high)
            drawn = trial.suggest_float(parameter.name, low, high, step=values.step, log=values.log)
            point[parameter.name] = values.rounded(drawn)
    return point


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    values, kinds = parameter.values, optuna.distributions
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(list(parameter.ends))
    if values.whole:
        return kinds.IntDistribution(int(values.low), int(values.high), log=values.log, step=int(values.step or 1))
    return kinds.FloatDistribution(float(values.low), float(values.high), log=values.log, step=values.step)


def _key(point: Point) -> str:
    return json.dumps(dict(point), sort_keys=True)

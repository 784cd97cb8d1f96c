"""A small federation for testing algorithms: it has few devices, needs no files, and runs in milliseconds.

    fed = small_federation("devices.count=3", "network.uplink.loss={kind: random, probability: 0.3}")
    fed.run(MyAlgorithm(lr=0.1))
    fed.ledger.frame("transfers")

By default, all times can be calculated by hand. Every transmission has a rate of 1 Mbit/s and succeeds. Devices upload
one at a time. The model is a linear regression with 9 features and 10 parameters, so a model has 320 bits and its
transmission takes 320 us. A training step takes 36 FLOP per sample. Each of the 4 devices has 20 samples, uses all of
them in every step, and computes at 1 MFLOP/s, so one step takes 720 us.
"""

from __future__ import annotations

from functools import cache

from fednet_emu.emulation.build import build
from fednet_emu.federation.federation import Federation
from fednet_emu.scenario.document import Document, apply_overrides, filled, from_text
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate

SMALL = """
title: A small federation
devices:
  count: 4
  placement: {kind: disc, radius_m: 50, inner_radius_m: 10}
  speed: {kind: fixed, flop_per_s: 1e6}
channel: ideal
data: {kind: synthetic-regression, n_samples: 80, n_test: 40, features: 9}
partition: iid
model: linear
algorithm: {kind: fedavg, cohort: 4, lr: 0.1, batch_size: null, local_steps: 1}
stop: {rounds: 3}
training: {engine: serial}
"""


def small_scenario(*settings: str) -> Scenario:
    """Return the small scenario, changed by `settings`, each a `key.path=value` as for `fednet run --set`.

    Raises:
        ScenarioError: a setting is malformed or unknown.
    """
    return validate(Scenario, apply_overrides(_small(), settings))


def small_federation(*settings: str, timing_only: bool = False) -> Federation:
    """Build the small federation, ready for `run(algorithm)`; the algorithm in its scenario is not used.

    Args:
        settings: changes to the scenario, each a `key.path=value`.
        timing_only: whether to skip training and evaluation.

    Raises:
        ScenarioError: a setting is malformed, unknown or impossible.
    """
    return build(small_scenario(*settings), timing_only=timing_only)


def run_small(*settings: str, timing_only: bool = False) -> Federation:
    """Run the algorithm of the small scenario and return the federation after the run.

    Raises:
        FednetError: the settings are wrong, or the run fails.
    """
    scenario = small_scenario(*settings)
    fed = build(scenario, timing_only=timing_only)
    fed.run(scenario.algorithm)
    return fed


@cache
def _small() -> Document:
    return filled(from_text(SMALL, "small"))

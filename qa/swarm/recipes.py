"""Values for the settings of a drawn scenario: small, so that a run takes milliseconds, but of every sort.

A setting is found by `slot.kind.name` (it is then always given), else by `slot.name`, else by its name; one without a
recipe keeps its default, or half of it. `kind` and `slot` are those of the component around it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Recipe = Callable[[Random, int], Any]
"""Draws a value, given the random numbers of the scenario and the number of devices."""

TRACES = str(Path(__file__).parents[2] / "channels" / "traces")

ELSEWHERE = {
    ("algorithm", "flower"),
    ("mobility", "trace"),
    ("mobility", "ns2"),
    ("mobility", "gps"),
    ("mobility", "tle"),
    ("mobility", "walker"),
    ("cells", "ground"),
    ("availability", "passes"),
    ("path_loss", "table"),
    ("speed", "flash"),
    ("trace", "flash"),
    ("trace", "irish-5g"),
    ("trace", "lumos-5g"),
    ("trace", "mahimahi"),
    ("trace", "pensieve"),
    ("edges", "contacts"),
    ("edges", "file"),
    ("dataset", "chest-accelerometer"),
    ("dataset", "fashion-mnist"),
    ("dataset", "hugging-face"),
    ("dataset", "mnist"),
    ("dataset", "npz"),
    ("dataset", "csv"),
    ("dataset", "parquet"),
    ("dataset", "leaf"),
    ("dataset", "imagefolder"),
    ("dataset", "torchvision"),
    ("dataset", "text"),
    ("model", "char-lstm"),
    ("model", "word-lstm"),
    ("model", "module"),
    ("model", "torchvision"),
    ("model", "transformers"),
    ("model", "lenet"),
    ("model", "niid-bench-cnn"),
    ("model", "resnet-18"),
}
"""Kinds that are not drawn: they need recordings, texts or larger images that are not here, or a library or code
of the user, or, as a network of 11 million parameters, they would take the time of a thousand other
scenarios; satellites go together only, as mixtures have them."""

EITHER = ("local_steps", "local_epochs")
"""Two settings of which an algorithm needs one, where it has both."""

OPTIONAL = 0.25
"""How often a setting that may be left out is given."""
TERMINALS = tuple(
    f"channel.{end}{name}"
    for end in ("device", "base_station")
    for name in ("", ".tx_power_dbm", ".noise_figure_db", ".height_m")
)
ALWAYS = (
    "devices", "devices.count", "devices.placement", "devices.speed", "devices.compute_energy",
    "channel.bandwidth_hz", *TERMINALS, "partition", "stop",
)  # fmt: skip
"""Settings that are always given though a scenario may leave them out: laws change them, and fifty rounds of twenty
boards take minutes."""
RARE = {
    "groups", "feature_noise", "attack", "region", "trace", "augment", "accuracy", "simulated_s", "bits", "energy_j",
    "edge_servers", "every_s", "dp_sgd", "traffic", "slices", "carbon",
}  # fmt: skip
"""Settings that are given once in twelve."""
USES = {
    "network.edge_servers": "edges", "network.sidelink": "sidelink", "server.flop_per_s": "server-speed",
    "server.samples": "server-samples", "server.validation_samples": "validation-samples",
    "evaluation.consensus": "consensus",
    "network.uplink.secure_aggregation": "sums",
}  # fmt: skip
"""Settings that are given only to algorithms whose `uses` contain this."""


def among(*values: Any) -> Recipe:
    """One of these values."""
    return lambda rng, count: rng.choice(values)


def between(low: float, high: float) -> Recipe:
    """A number to three digits, uniform."""
    return lambda rng, count: float(f"{rng.uniform(low, high):.3g}")


def spread(low: float, high: float) -> Recipe:
    """A number to three digits, uniform on a logarithmic scale."""
    return lambda rng, count: float(f"{low * (high / low) ** rng.random():.3g}")


def each(recipe: Recipe) -> Recipe:
    """A list with one value for each device."""
    return lambda rng, count: [recipe(rng, count) for _ in range(count)]


def device(rng: Random, count: int) -> int:
    """The number of a device."""
    return rng.randrange(count)


def up_to_all(rng: Random, count: int) -> int:
    """A number of devices."""
    return rng.randint(1, count)


def some(rng: Random, count: int) -> list[int]:
    """A few devices, at least one."""
    return sorted(rng.sample(range(count), rng.randint(1, count)))


def point(rng: Random, count: int) -> list[float]:
    """A place in metres, around the base station."""
    return [round(rng.uniform(-150, 150), 1), round(rng.uniform(-150, 150), 1)]


def halves(rng: Random, count: int) -> list[list[int]]:
    """All devices in two sets, one of which may be empty for a single device."""
    devices = rng.sample(range(count), count)
    return [devices[: (count + 1) // 2], devices[(count + 1) // 2 :]]


def windows(rng: Random, count: int) -> dict[str, list[list[float]]]:
    """Up to three windows for some devices."""
    found = {}
    for index in some(rng, count):
        edges = sorted({round(rng.uniform(0, 20), 3) for _ in range(2 * rng.randint(1, 3))})
        found[str(index)] = [list(pair) for pair in zip(edges[::2], edges[1::2], strict=False)]
    return found


def crowd(rng: Random, count: int) -> list[dict[str, Any]]:
    """One or two classes of other users, with few and small files."""
    classes = []
    for name in ("phones", "pages")[: rng.randint(1, 2)]:
        mean_byte = round(10 ** rng.uniform(1, 4))
        sizes = ({"kind": "fixed", "byte": mean_byte}, {"kind": "exponential", "mean_byte": mean_byte})
        gap = {"kind": rng.choice(("fixed", "exponential")), "mean_s": float(f"{10 ** rng.uniform(-1, 1):.2g}")}
        its = {"name": name, "users": rng.randint(1, 4), "size": rng.choice(sizes), "gap": gap}
        its["direction"], its["after"] = rng.choice(("uplink", "downlink")), rng.choice(("arrival", "end"))
        classes.append(its)
    return classes


FILES: dict[str, Recipe] = {
    "traffic": crowd,
    "network.slices": lambda rng, count: {
        "fl": {"priority": rng.randint(0, 1)},
        "others": {"priority": rng.randint(0, 1)},
    },
    "channel.device.profile": among("esp32", "sx1276", "phone-lte-2020"),
    "channel.base_station.profile": among("earth-pico", "earth-macro"),
}
"""Files of the library, by the key path of the setting that names one."""

RECIPES: dict[str, Recipe] = {
    "a": between(0, 2),
    "arrival_j": spread(1e-3, 1),
    "accuracy": between(0.1, 0.9),
    "active_w": between(0, 5),
    "algorithm.active": up_to_all,
    "algorithm.fedasync.alpha": between(0, 1),
    "amplifier_efficiency": between(0.1, 1),
    "antennas": among(1, 2, 3, 8),
    "alpha": spread(0.05, 5),
    "args": among({}),
    "batch_size": among(None, 1, 8, 16),
    "b": among(0, 1, 4),
    "bandwidth_hz": among(1e5, 1e6, 5e6, 2e7, 2e7, 1e8),
    "bits": spread(1e4, 1e7),
    "bit_rate_bps": spread(1e4, 1e7),
    "block_symbols": among(100, 1000),
    "budget": between(0, 2),
    "buffer_size": among(1, 2, 5),
    "capacity_j": spread(1e-2, 10),
    "carrier_hz": among(7e8, 2e9, 3.5e9, 5.9e9, 2.8e10),
    "coherence_s": spread(0.01, 10),
    "circuit_w": among(0.0, 0.3),
    "clip_norm": spread(0.01, 10),
    "clock_hz": spread(1e8, 3e9),
    "cohort": up_to_all,
    "concurrency": up_to_all,
    "count": among(1, 2),
    "deadline_s": spread(0.1, 100),
    "day_s": spread(1, 100),
    "degree": among(1, 2, 3),
    "delay_s": among(0.0, 0.01, 1.0),
    "device": device,
    "devices": some,
    "distance": between(0.1, 2),
    "edge_rounds": among(1, 2, 3),
    "energy_j": spread(0.01, 10),
    "energy_j_per_bit": among(0.0, 1e-8, 1e-6),
    "error_rate": between(0.01, 0.4),
    "every_s": spread(0.1, 10),
    "exponent": between(2, 4),
    "factor": spread(2, 1000),
    "features": among(1, 9, 20),
    "flop_per_s": spread(1e5, 1e9),
    "flop_per_cycle": spread(0.1, 10),
    "from_s": between(0, 5),
    "groups": among(1, 2),
    "hall": among("SL", "DL", "SH", "DH", "HH"),
    "metrics": among([], ["macro-f1", "perplexity"], ["mae", "r2"]),
    "header_bit": among(0, 320, 4000),
    "height_m": between(1, 25),
    "high_loss_share": between(0, 1),
    "hidden": among([4], [8], [8, 4], [1]),
    "idle_w": among(0.0, 0.0, 0.2),
    "inactivity_s": among(0.0, 0.01, 1.0, 10.0),
    "inter_site_distance_m": between(100, 500),
    "k_db": between(-10, 15),
    "local_epochs": among(1, 2),
    "local_steps": among(1, 2, 5),
    "lag_tolerance": among(1, 2, 5),
    "lr": among(0, 0.01, 0.1, 0.5),
    "lr_lambda": among(0, 0.02, 0.2),
    "m": between(0.5, 5),
    "malicious": among(1, [0]),
    "initial_window": among(1, 10),
    "initial_share": between(0.5, 1),
    "initial_spread": between(0, 0.5),
    "mean_interval_s": spread(0.01, 1),
    "mean_factor": spread(0.1, 10),
    "median_flop_per_s": spread(1e5, 1e9),
    "min_sinr_db": between(-10, 10),
    "mobility.sumo.path": among("channels/traces/crossing.fcd.xml.gz"),
    "mobility.sumo.centre_m": among([300, 300], [150, 310]),
    "mobility.walker.height_m": spread(4e5, 4e7),
    "mobility.walker.inclination_deg": between(0, 180),
    "mobility.walker.phasing": among(0),
    "mobility.walker.planes": among(1),
    "mask_deg": between(0, 40),
    "narrowest_hz": among(None, 1e4, 360e3),
    "noise_multiplier": among(0, 0.5, 2),
    "noise_figure_db": between(0, 9),
    "noise_density_dbm_hz": between(-180, -165),
    "off_s": spread(0.1, 10),
    "on_s": spread(1, 30),
    "overhead_s": among(0.0, 0.02, 5.0),
    "slowdown": lambda rng, count: {str(device(rng, count)): rng.choice((0.5, 10.0))},
    "peak_w": spread(0.01, 10),
    "per_message_s": among(0.0, 0.05),
    "promotion_s": among(0.0, 0.2),
    "profile": among("pi-4b", "jetson-nano", "phone-2019-mid"),
    "phi_max": between(0, 1),
    "probability": between(0, 0.9),
    "radius_m": between(30, 200),
    "rate_bps": among(None, 1e4, 1e6),
    "rx_j_per_bit": among(0.0, 1e-7),
    "rx_consumption_w": among(0.0, 0.5),
    "receive_window_byte": among(1500.0, 65536.0, 4e6),
    "reach_m": between(20, 300),
    "restart_share": between(0.01, 1),
    "retries": among(0, 1, 3),
    "rho": between(0, 1),
    "rings": among(1, 1, 2),
    "rounds": among(1, 2, 3, 4),
    "rtt_s": among(0.0, 0.02, 1.0),
    "selected_fraction": between(0.05, 1),
    "sets": halves,
    "sites": among(
        [{"lat_deg": 0, "lon_deg": 0}],
        [{"lat_deg": 50, "lon_deg": 8.6, "height_m": 200}, {"lat_deg": -33, "lon_deg": 150}],
    ),
    "sigma": between(0, 2),
    "sigma_db": between(0, 10),
    "step_s": spread(0.1, 10),
    "steps": among(2, 8, 96),
    "simulated_s": spread(1, 1000),
    "slot_s": spread(0.01, 1),
    "target_dbm": between(-110, -60),
    "target_snr_db": between(-5, 20),
    "time_s": spread(1e-6, 1),
    "timeout_s": spread(0.5, 100),
    "to_s": between(6, 60),
    "tx_j_per_bit": among(0.0, 1e-7),
    "tx_power_dbm": between(15, 40),
    "variance": spread(0.01, 10),
    "width_m": between(50, 300),
    "length_m": between(50, 300),
    "xy_m": each(point),
    "access.nr-grants.pattern": among("DDDSU", "DDDDDDDSUU", "DU"),
    "access.nr-grants.subcarrier_spacing_khz": among(15, 30),
    "access.nr-grants.sr_period_s": among(0.002, 0.02),
    "access.budget": among("mean", "peak"),
    "access.csi_error": between(0, 0.3),
    "access.cutoff": between(0.05, 1),
    "access.snr_db": between(-10, 20),
    "access.symbols_per_slot": among(1, 30, 1000),
    "lr_schedule.every_rounds": among(1, 2),
    "lr_schedule.gamma": between(0.1, 1),
    "compression.chain.stages": among(
        [{"kind": "top-k", "share": 0.3}, "qsgd"],
        ["random-k", {"kind": "top-k", "error_feedback": False}, "sign"],
        [{"kind": "random-k", "error_feedback": True}, {"kind": "uniform", "bits": 2}],
    ),
    "compression.qsgd.levels": among(1, 3, 15, 100),
    "compression.share": between(0.02, 1),
    "compression.uniform.bits": among(2, 4, 8),
    "edges.list.pairs": lambda rng, count: [[k, k + 1] for k in range(count - 1)],
    "harvesting.constant.power_w": spread(1e-3, 1),
    "harvesting.trace.power_w": among([0.5, 0.0, 0.1], [0.2]),
    "mobility.alpha": between(0, 0.99),
    "cells.xy_m": lambda rng, count: [[0, 0], *(point(rng, count) for _ in range(rng.randint(0, 2)))],
    "speed.list.flop_per_s": each(spread(1e5, 1e9)),
    "windows.devices": windows,
    "availability.devices": windows,
    "straggler.log-normal.sigma": between(0, 3),
    "straggler.normal-steps.step_s": between(0.001, 0.1),
    "straggler.normal-steps.deviation_s": between(0, 0.05),
    "straggler.pareto.alpha": between(1.05, 3),
    "structure.list.groups": halves,
    "trace.csv.path": among(TRACES),
    "dataset.n_samples": among(120, 300),
    "dataset.n_test": among(20, 60),
    "dataset.classes": among(2, 3, 10),
    "model.digit-model.channels": among([2, 2, 2]),
    "model.digit-model.units": among([8, 4], [2, 8]),
    "model.mlp.dropout": among([]),
    "uncertainty.bounds": among([1.0]),
    "uncertainty.matrix": lambda rng, count: [[1.0] * count],
    "partial_work.random.share": between(0.1, 1),
    "partition.per_device": among(1, 5, 30),
    "partition.samples_per_device": among(20, 60),
    "partition.skew": among("iid", "non-iid"),
    "partition.sets": among(2, 3),
    "algorithm.max_delay": among(1, 3, 10),
    "algorithm.n_clusters": up_to_all,
    "algorithm.clusters": among(1, 2, 3),
    "algorithm.slot_s": spread(0.01, 10),
    "algorithm.stationary": spread(0.01, 10),
    "algorithm.split": spread(0.01, 10),
    "algorithm.alpha": between(0, 2),
    "algorithm.dual_lr": between(0, 0.1),
    "algorithm.head_epochs": among(1, 2),
    "algorithm.max_planes": among(2, 5, 20),
    "algorithm.plane_every": among(1, 2, 10),
    "algorithm.personal_layers": among([-1], [], ["*.bias"]),
    "algorithm.pull": between(0, 1),
    "algorithm.matcha.budget": between(0.05, 1),
    "algorithm.pairs": among(1, 2),
    "algorithm.ranks": among([1], [2], [1, 2], [2, 1, 1]),
    "algorithm.splitfed.batch_size": among(8, 16, None),
    "algorithm.splitfed.cut": among(1, 1, "least-time"),
    "algorithm.survey": among(1, 10),
    "algorithm.uplink_arrives": among(0.5, 1.0),
    "selection.candidates": lambda rng, count: count,
    "selection.exploration": among(0.5, 0.9, 1.0),
    "selection.min_exploration": among(0.0, 0.2, 0.5),
    "selection.max_rounds": among(1, 3),
    "selection.round_s": spread(0.01, 100),
    "selection.window": among(1, 2, 20),
    "secure_aggregation.neighbours": among(None, 2),
    "secure_aggregation.threshold": among(None, 2),
    "secure_aggregation.prg_flop_per_entry": among(0.0, 4.0),
}

NEEDS: dict[str, dict[str, Any]] = {
    "aspire": {"algorithm.uncertainty": True},
    **{
        kind: {"network.sidelink": True, "network.sidelink.topology": True}
        for kind in ("ad-psgd", "colrel", "connectivity-aware", "d-psgd", "gossip", "matcha", "sgp")
    },
    **{
        kind: {
            "data": "synthetic",
            "data.features": 9,
            "data.classes": 3,
            "model": "module",
            "model.path": "tests.algorithms.adapters.networks:Adapted",
            "model.args": {"features": 9, "outputs": 3, "rank": 2},
            "model.loss": "cross-entropy",
        }
        for kind in ("flexlora", "flora", "hetlora")
    },
    "hier-favg": {"network.edge_servers": True, "network.edge_servers.backhaul": True},
    "splitfed": {"model": "mlp", "server.flop_per_s": 1e7},
    "fedul": {
        "partition": "surrogate-sets",
        "server.samples": 40,
        "server.validation_samples": 40,
        "server.flop_per_s": 1e7,
    },
    "feddf": {"server.samples": 40, "server.flop_per_s": 1e7},
    "fedmd": {"server.samples": 40},
}
"""What an algorithm cannot do without: a kind, a value, or True for a part that may else be left out."""

"""Scenes for both emulators of whole rounds: settings of the small federation, drawn from a number."""

from __future__ import annotations

import json
from random import Random
from typing import Any

PLANNERS = (
    {"kind": "least-time"},
    {"kind": "fedl", "j_per_s": 0.1},
    {"kind": "fedl", "j_per_s": 10.0, "margin_db": 3.0},
    {"kind": "resource-blocks", "blocks": 2, "inr_db": [3.0, -2.0], "waterfall_db": -3.0},
    {"kind": "resource-blocks", "blocks": 4, "waterfall_db": 3.0, "max_energy_j": 0.004},
)


def scene(number: int, *, shared: bool = False) -> tuple[str, ...]:
    """The settings of a scene, each as `key=value`; `shared` with other users, and sometimes with slices."""
    rng = Random(f"scene {number}")
    count, kind = rng.randint(1, 5), rng.choice(("turns", "parts", "planned", "over the air", "edges"))
    kind = ("turns", "parts")[number % 2] if shared else kind
    settings: dict[str, Any] = {
        "seed": number,
        "title": kind,
        "devices.count": count,
        "data.n_samples": 20 * count,
        "devices.placement": {
            "kind": "list",
            "xy_m": [[rng.uniform(-90, 90), rng.uniform(-90, 90)] for _ in range(count)],
        },
        "devices.speed": {"kind": "list", "flop_per_s": [rng.uniform(2e5, 4e6) for _ in range(count)]},
        "devices.compute_energy": {"kind": "measured", "active_w": rng.choice((0.05, 0.5, 2.0))},
        "channel": channel(rng, kind),
        "algorithm": algorithm(rng, kind, count),
        "network": network(rng, kind),
        "stop.rounds": rng.randint(1, 4),
    }
    slow = settings["channel"]["rate"].get("bit_rate_bps", 1e9) < 1
    planner = settings["network"]["uplink"]["access"].get("planner", {})
    if "waterfall_db" in planner and settings["channel"]["device"]["tx_power_dbm"] <= 0:
        settings["network"]["uplink"]["access"]["planner"] = {**planner, "waterfall_db": -20.0}
    if shared:
        if slow:
            settings["channel"]["rate"]["bit_rate_bps"] = 1e5
        settings["traffic"] = traffic(rng)
        settings["network"]["slices"] = slices(rng, settings["traffic"], kind)
    elif rng.random() < 0.6 and not slow:
        settings["devices.battery"] = battery(rng)
    if rng.random() < 0.3 and not shared:
        settings["devices.availability"] = {"kind": "windows", "devices": windows(rng, count)}
    return tuple(f"{path}={json.dumps(value)}" for path, value in settings.items())


def place(rng: Random) -> list[float]:
    """Around the stations."""
    return [rng.uniform(-90, 90), rng.uniform(-90, 90)]


def channel(rng: Random, kind: str) -> dict[str, Any]:
    """A band with a closed law of path loss; several cells have a fixed rate, undisturbed.

    Weak devices reach the least efficiency on part of the band only, or never. With the fixed rates below 1 bit/s a
    message takes half an hour or is not worth trying.
    """
    fixed: dict[str, Any] = {"kind": "fixed", "bit_rate_bps": rng.choice((1e5, 1e6))}
    if kind not in ("edges", "over the air") and rng.random() < 0.3:
        fixed |= {"on_outage": "stall", "threshold_db": 20.0}
    if kind in ("turns", "parts") and rng.random() < 0.2:
        fixed["bit_rate_bps"] = rng.choice((0.05, 0.2))
    shannon = {"kind": "shannon", "gap_db": rng.choice((0.0, 2.0)), "min_efficiency_bps_hz": 0.0}
    shannon["max_efficiency_bps_hz"] = rng.choice((None, 5.5547))
    by_rate = kind in ("turns", "parts") and rng.random() < 0.7
    fading = {"kind": "rayleigh", "coherence_s": 0.002} if kind == "over the air" and rng.random() < 0.7 else "none"
    by_hertz = by_rate or kind == "planned"
    weak = by_hertz and rng.random() < 0.5
    if weak:
        shannon["min_efficiency_bps_hz"] = 0.1523
    return {
        **(rng.choice(({}, {"narrowest_hz": 1e4}, {"narrowing": "off"})) if weak else {}),
        "carrier_hz": 2e9,
        "bandwidth_hz": rng.choice((1e6, 1e7) if weak else (1e5, 1e6)),
        "path_loss": {"kind": "log-distance", "exponent": 3.5, "reference_loss_db": 40.0},
        "fading": fading,
        "rate": shannon if by_hertz else fixed,
        "device": terminal(rng, rng.choice((0.0, -10.0)) if weak else 20.0, 1.5),
        "base_station": terminal(rng, 30.0, 10.0),
    }


def terminal(rng: Random, dbm: float, height_m: float) -> dict[str, Any]:
    """A radio."""
    power = {"amplifier_efficiency": rng.choice((1.0, 0.4)), "circuit_w": rng.choice((0.0, 0.1))}
    power |= {"rx_consumption_w": rng.choice((0.0, 0.3)), "idle_w": rng.choice((0.0, 0.05))} if height_m < 2 else {}
    return {"tx_power_dbm": dbm, "noise_figure_db": 7.0, "height_m": height_m, **power}


def algorithm(rng: Random, kind: str, count: int) -> dict[str, Any]:
    """Everybody who is there takes part; some have a deadline."""
    own = {"lr": 0.1, "batch_size": None, "local_steps": rng.randint(1, 4), "cohort": count}
    if rng.random() < 0.4:
        own["deadline_s"] = round(rng.uniform(0.005, 0.02), 6)
    if kind == "edges":
        return {"kind": "hier-favg", "edge_rounds": rng.randint(1, 3), "backhaul_retries": rng.randint(0, 2), **own}
    return {"kind": "fedavg", **own}


def network(rng: Random, kind: str) -> dict[str, Any]:
    """The band in turns or in parts, as planned, or for sums; losses, headers, cells."""
    access: dict[str, Any] = {"kind": "ofdma" if kind == "parts" else "tdma"}
    if kind == "planned":
        access = {"kind": "planned", "planner": rng.choice(PLANNERS)}
    if kind == "over the air":
        more = rng.choice(({}, {"budget": "peak"}, {"snr_db": 30.0}, {"snr_db": 60.0}))
        access = {"kind": "over-the-air", "slot_s": 1e-3, "symbols_per_slot": rng.randint(2, 6), "cutoff": 0.3, **more}
    found: dict[str, Any] = {"uplink": {"access": access}, "downlink": {}}
    if rng.random() < 0.5:
        found["overhead"] = {"kind": "header", "header_bit": rng.choice((80, 320))}
    for way in [found["downlink"], *([found["uplink"]] if kind != "over the air" else [])]:
        if rng.random() < 0.3:
            way["message_loss"] = {"kind": "random", "probability": 0.3}
        if rng.random() < 0.7:
            way["timeout_s"] = rng.choice((0.0005, 60.0, 60.0, 2000.0))
    if kind == "edges":
        found["cells"] = {"kind": "list", "xy_m": [[-60, 0], [60, 0], [0, 80]][: rng.randint(1, 3)]}
        found["edge_servers"] = {"backhaul": backhaul(rng)}
    return found


def backhaul(rng: Random) -> dict[str, Any]:
    """Lines of some rate, delay and loss."""
    return {
        "rate_bps": rng.choice((None, 1e5, 1e6)),
        "delay_s": rng.choice((0.0, 0.003)),
        "energy_j_per_bit": 1e-6,
        "message_loss": {"kind": "random", "probability": 0.4} if rng.random() < 0.5 else "none",
    }


def traffic(rng: Random) -> list[dict[str, Any]]:
    """One to three classes of other users, with loads of up to some tenths."""
    return [user_class(rng, name) for name in ("phones", "readers", "sensors")[: rng.randint(1, 3)]]


def user_class(rng: Random, name: str) -> dict[str, Any]:
    """Some users whose files arrive, or follow on each other, and have laws of sizes and of gaps."""
    users, byte, gap_s = rng.randint(1, 3), rng.uniform(20, 400), rng.uniform(0.005, 0.05)
    sizes = (
        {"kind": "fixed", "byte": round(byte)},
        {"kind": "exponential", "mean_byte": byte},
        {"kind": "log-normal", "mean_byte": byte, "sigma": 1.0, "max_byte": 10 * byte},
        {"kind": "bounded-pareto", "shape": 1.5, "min_byte": byte / 3, "max_byte": 30 * byte},
    )
    gaps = ({"kind": "fixed", "mean_s": gap_s}, {"kind": "exponential", "mean_s": gap_s})
    how = rng.choice(({}, {"after": "end"}, {"place": "per-file"}))
    places = [[rng.uniform(-90, 90), rng.uniform(-90, 90)] for _ in range(users)]
    return {
        "name": name, "users": users, "placement": {"kind": "list", "xy_m": places},
        "direction": rng.choice(("uplink", "uplink", "downlink")), "size": rng.choice(sizes), "gap": rng.choice(gaps),
        "slice": rng.choice((None, name)), **how,
    }  # fmt: skip


def slices(rng: Random, classes: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """None, or one for each name; turns have priorities alone."""
    names = sorted({its["slice"] or "others" for its in classes} | {"fl"})
    if rng.random() < 0.3 and names == ["fl", "others"]:
        return {}
    found: dict[str, Any] = {}
    for name in names:
        found[name] = {"priority": rng.randint(0, 1)}
        if kind == "parts" and all(its["direction"] == "uplink" for its in classes):
            kept, least = sorted(rng.choice((0.0, 0.0, 0.1, 0.2)) for _ in range(2))
            found[name] |= {"weight": rng.choice((1.0, 3.0)), "dedicated": kept, "min": least}
            found[name]["max"] = rng.choice((1.0, 1.0, max(least, 0.5)))
    return found


def battery(rng: Random) -> dict[str, Any]:
    """Some millijoules, which last for a few messages and computations."""
    harvesting = rng.choice((
        {"kind": "none"},
        {"kind": "constant", "power_w": rng.uniform(0.01, 1.0)},
        {"kind": "trace", "power_w": [rng.uniform(0, 2), 0.0, rng.uniform(0, 0.5)], "step_s": 0.01},
        {"kind": "poisson", "arrival_j": rng.uniform(1e-4, 2e-3), "mean_interval_s": rng.uniform(1e-3, 1e-2)},
        {"kind": "solar", "peak_w": rng.uniform(0.1, 3.0), "day_s": 1.0, "steps": 100},
    ))  # fmt: skip
    return {
        "capacity_j": 2e-4 * 100 ** rng.random(),
        "initial_share": rng.choice((1.0, 0.6)),
        "initial_spread": rng.choice((0.0, 0.6)),
        "restart_share": rng.uniform(0.05, 0.8),
        "harvesting": harvesting,
    }


def windows(rng: Random, count: int) -> dict[int, list[list[float]]]:
    """Some devices come and go."""
    found = {}
    for k in rng.sample(range(count), rng.randint(1, count)):
        edges = sorted({round(rng.uniform(0, 0.06), 6) for _ in range(6)})
        found[k] = [[since, until] for since, until in zip(edges[::2], edges[1::2], strict=False)] + [[1.0, 9.0]]
    return found

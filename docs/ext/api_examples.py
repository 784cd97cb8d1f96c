"""Add an example, in the style of a notebook, to the API page of each public name."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, str] = {
    "run": (
        'run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05})\n'
        "run.accuracy, run.simulated_s, run.energy_j"
    ),
    "check": 'scenario = fe.check("quickstart", settings={"network.uplink.access": "ofdma"})\nscenario.devices.count',
    "scenarios": '"quickstart" in fe.scenarios()',
    "channels": 'fe.channels(["urban-micro", "rural"])[["channel", "rate_at_200_m_bps"]]',
    "profiles": 'fe.profiles(["pi-4b", "cortex-m4"])[["profile", "flop_per_s", "active_w"]]',
    "kinds": 'fe.kinds("network.uplink.access")["tdma"]',
    "noise_multiplier_for": "fe.noise_multiplier_for(4.0, delta=1e-5, rounds=200, rate=0.1)",
    "add_lora_adapters": (
        'module = fe.add_lora_adapters(network, rank=8, targets=["q_proj", "v_proj"], train=["score.*"])\n'
        'run = fe.run("quickstart", model=module)'
    ),
    "schema": 'import json\n\njson.dump(fe.schema(), open("scenario.schema.json", "w"))',
    "sweep": (
        'study = fe.sweep(\n    "quickstart",\n    grid={"network.uplink.access": ["tdma", "ofdma"]},\n    seeds=3,\n'
        '    settings={"stop.rounds": 10},\n)\nstudy.runs'
    ),
    "search": (
        'found = fe.search(\n    "quickstart",\n    {"algorithm.lr": {"low": 0.01, "high": 1.0, "log": True}},\n'
        '    target={"accuracy": 0.8},\n    trials=6,\n    seeds=2,\n)\nprint(found)'
    ),
    "live": (
        'upload = ["python", "examples/live_upload.py", "{role}", "{server}", "100000"]\n'
        'run = fe.live("quickstart", upload, settings={"stop.simulated_s": 60})\nrun.table("live_messages")'
    ),
    "open": 'run = fe.open("results/quickstart/seed-0")\nrun.transfers.head()',
    "compare": 'print(fe.compare("results/tdma", "results/ofdma"))',
    "plot": 'fe.plot([first, second], "accuracy", against="energy", labels=["TDMA", "OFDMA"])',
    "Run": 'run = fe.run("quickstart")\nrun.rounds["arrived"].mean(), run.plot("timeline")',
    "Study": 'study = fe.open("results/quickstart_access")\nstudy.plot("accuracy", against="time")',
    "Comparison": 'print(study.compare("access=tdma", "access=ofdma"))',
    "Ranking": 'print(study.best(by="time"))',
    "Search": 'print(fe.open("results/quickstart_search"))',
    "Explanation": "print(run.explain())",
    "Flower": 'fe.run("quickstart", algorithm=fe.Flower(server_app, client_app), settings={"stop.simulated_s": 60})',
}
"""Example code of each public name of `fednet_emu`; the code calls the package `fe`."""


def add_example(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append the example of a public name to `lines`, the lines of its docstring."""
    package, _, short = name.partition(".")
    if package == "fednet_emu" and short in EXAMPLES:
        lines += ["", ".. rubric:: Example", "", ".. code-block:: python", ""]
        lines += [f"   {line}" for line in EXAMPLES[short].splitlines()]
        lines += [""]


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.connect("autodoc-process-docstring", add_example, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

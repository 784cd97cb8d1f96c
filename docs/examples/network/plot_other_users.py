"""
What does my federation cost the others?
========================================

A federation shares its cell with other users. Here a hundred phones send files of 15 kB over the uplink of the same
OFDMA cell. How much do uploads delay these files, and files the rounds? The same files run under five rules; `idle` is
the cell without the federation.
"""

# sphinx_gallery_tags = ["uplink", "traffic", "slices"]

import pandas as pd

import fednet_emu as fe

PHONES = {
    "name": "phones",
    "users": 100,
    "size": {"kind": "fixed", "byte": 15_000},
    "gap": {"kind": "exponential", "mean_s": 10},
}
SETTINGS = {
    "network.uplink.access": "ofdma",
    "traffic": [PHONES],
    "model.hidden": [64],
    "stop": {"simulated_s": 120},
}
RULES = {
    "no federation": {"algorithm": "idle"},
    "equal parts": {},
    "a quarter for the federation": {"network.slices": {"fl": {"weight": 1, "min": 0.25}, "others": {"weight": 3}}},
    "federation last": {"network.slices": {"fl": {"priority": 1}, "others": {"priority": 0}}},
    "federation first": {"network.slices": {"fl": {"priority": 0}, "others": {"priority": 1}}},
    "turns in the order of requests": {"network.uplink.access": "tdma"},
}
runs = {name: fe.run("quickstart", settings=SETTINGS | rule, timing_only=True) for name, rule in RULES.items()}

# %%
# The price list in s. A federation that goes last has longer rounds, and costs the phones nothing; with equal parts of
# the band, the files of the phones take twice as long. Delays count from the arrival of a file.

rows = []
for name, run in runs.items():
    phones, rounds = run.summary["traffic"]["phones"], run.rounds
    uploads = run.transfers.query("direction == 'uplink'")
    took_s = float((rounds["ended_s"] - rounds["started_s"]).mean()) if len(rounds) else float("nan")
    upload_s = float((uploads["ended_s"] - uploads["requested_s"]).mean()) if len(uploads) else float("nan")
    rows.append((name, took_s, upload_s, phones["mean_s"], phones["p95_s"], phones["while_sending"]["p95_s"]))
prices = pd.DataFrame(rows, columns=["rule", "round", "upload", "file, mean", "file, 95 %", "95 % while uploading"])
print(prices.set_index("rule").round(3).to_string())

# %%
# What decided the length of the rounds, and what a slice that goes first could give:

print(runs["equal parts"].explain())

# %%
# `fednet sweep slices` runs the study with `network.slices.fl.priority` as its axis, and
# `fednet best results/slices --minimise neighbours` ranks its settings by the 95 % delay of the phones.

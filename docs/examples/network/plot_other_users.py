"""
Cost of a federation for other users
====================================

A federation shares its cell with other users. In this example, a hundred phones send files of 15 kB over the uplink of
the same OFDMA cell. How much do model uploads delay these files, and how much do these files delay the rounds? The same
files are sent under five rules, and with the algorithm `idle`, which is the cell without the federation.
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
# Delays in s, from the arrival of a file. A federation with the lowest priority has longer rounds and does not delay
# the phones. With equal parts of the band, the files of the phones take twice as long.

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
# The causes of the length of the rounds, and the gain from a slice with the highest priority:

print(runs["equal parts"].explain())

# %%
# `fednet sweep slices` runs the study with `network.slices.fl.priority` as its axis, and
# `fednet best results/slices --minimise neighbours` ranks its settings by the 95 % delay of the phones.

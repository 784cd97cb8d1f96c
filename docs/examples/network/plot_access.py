"""
Access schemes: turns, shares, or all at once
=============================================

In each round, ten of twenty phones upload a model. The access scheme determines which phones send at a time. This page
compares five schemes with the same phones, channels and data: one phone after the other (TDMA), simultaneously on parts
of the band (OFDMA with two schedulers), all at once with interference cancellation (NOMA), and in random slots (slotted
ALOHA). The phones compute for only a few milliseconds, so the uplink dominates the duration of a round.
"""

# sphinx_gallery_tags = ["access", "uplink"]
# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt

import fednet_emu as fe

SCHEMES = {
    "TDMA": "tdma",
    "OFDMA, equal parts": "ofdma",
    "OFDMA, equal finish": {"kind": "ofdma", "scheduler": "equal-finish"},
    "NOMA": {"kind": "noma", "sinr_threshold_db": -6, "residual": 0.001},
    "slotted ALOHA": {"kind": "slotted-aloha", "slot_s": 0.01, "probability": 0.1},
}
SETTINGS = {
    "devices.profile": "phone-2019-mid",
    "devices.speed": None,
    "devices.straggler": {"kind": "none"},
    "model.hidden": [64],
    "stop.rounds": 25,
}
runs = {
    name: fe.run("quickstart", seed=1, settings=SETTINGS | {"network.uplink.access": access})
    for name, access in SCHEMES.items()
}

# %%
# Accuracy against simulated time. All runs have the same cohorts and train the same batches, so that they differ only
# in the time that transmissions take.

planned = [name for name in runs if name != "slotted ALOHA"]
fe.plot([runs[name] for name in planned], "accuracy", against="time", labels=planned)

# %%
# The bars show the mean waiting time and the mean airtime of an upload. With TDMA, uploads wait and are then fast. With
# OFDMA, no upload waits, but all are slow. Equal finish delays single uploads so that the last upload, which ends the
# round, ends earlier.

waits = {}
for name, run in runs.items():
    uplink = run.transfers.query("direction == 'uplink'")
    waits[name] = ((uplink.started_s - uplink.requested_s).mean(), (uplink.ended_s - uplink.started_s).mean())

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.barh(list(waits), [wait for wait, _ in waits.values()], color="0.75", label="waiting")
axes.barh(
    list(waits), [air for _, air in waits.values()], left=[wait for wait, _ in waits.values()], label="on the air"
)
axes.set(xlabel="Mean time of an upload (s)")
axes.invert_yaxis()
axes.legend()

# %%
# The mean length of a round:

for name, run in runs.items():
    print(f"{name:20} {(run.rounds['ended_s'] - run.rounds['started_s']).mean():6.2f} s")

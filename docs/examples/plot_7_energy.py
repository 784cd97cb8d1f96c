"""
An energy budget
================

All devices together may spend so many joules, on computing and on sending. More local epochs per round save uploads,
and cost computing; a lower power saves energy on the air, and takes longer. What buys the most accuracy?
"""

import matplotlib.pyplot as plt

import fednet_emu as fe

BUDGET_J = 3.0
CHOICES = {
    "1 epoch": {"algorithm.local_epochs": 1},
    "2 epochs": {"algorithm.local_epochs": 2},
    "8 epochs": {"algorithm.local_epochs": 8},
    "2 epochs, 10 dBm": {"algorithm.local_epochs": 2, "channel.device.tx_power_dbm": 10},
}
SETTINGS = {
    "devices.compute_energy": {"kind": "cmos", "kappa": 5.0e-21},  # slow boards that use as much energy as their radios
    "stop.rounds": 400,
    "stop.energy_j": BUDGET_J,
}
runs = {name: fe.run("quickstart", seed=1, settings=SETTINGS | choice) for name, choice in CHOICES.items()}

# %%
# Accuracy against the energy spent.

fe.plot(list(runs.values()), "accuracy", against="energy", labels=list(runs))

# %%
# Accuracy against simulated time:

fe.plot(list(runs.values()), "accuracy", against="time", labels=list(runs))

# %%
# The parts of the energy. The sum includes the base station's part, the broadcast downlink.

figure, axes = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
start = [0.0] * len(runs)
for part in ("computing", "uplink", "downlink"):
    energy_j = [
        run.computes["energy_j"].sum()
        if part == "computing"
        else run.transfers.loc[run.transfers["kind"] == part, ["energy_j", "receive_j"]].sum().sum()
        for run in runs.values()
    ]
    axes.barh(list(runs), energy_j, left=start, label=part)
    start = [before + more for before, more in zip(start, energy_j, strict=True)]
axes.set(xlabel="Energy (J)")
axes.invert_yaxis()
axes.legend()

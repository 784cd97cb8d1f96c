"""
An energy budget
================

All devices together may spend so many joules, on computing and on sending. More local epochs per round save uploads, and cost
computing; a lower power saves energy on the air, and takes longer. What buys the most accuracy?
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
runs = {
    name: fe.run("quickstart", seed=1, settings={"stop.rounds": 400, "stop.energy_j": BUDGET_J} | choice)
    for name, choice in CHOICES.items()
}

# %%
# Accuracy against the energy spent, and against the time that it took.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), sharey=True, layout="constrained")
for name, run in runs.items():
    left.plot(run.evaluations["energy_j"], run.evaluations["accuracy"], label=name)
    right.plot(run.evaluations["simulated_s"], run.evaluations["accuracy"], label=name)
left.set(xlabel="Energy (J)", ylabel="Test accuracy", ylim=(0.5, 1))
right.set(xlabel="Simulated time (s)")
right.legend()

# %%
# Where it went. The base station's share, the broadcast downlink, is in the sum as well.

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

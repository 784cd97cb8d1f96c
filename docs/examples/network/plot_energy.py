"""
An energy budget
================

All devices and the base station together have a budget of ten joules for computing, sending, receiving and waiting.
More local epochs per round save messages and cost computing energy. A lower transmit power saves energy in the
amplifier and takes longer. Which setting gives the highest accuracy?
"""

# sphinx_gallery_tags = ["energy", "local epochs"]
# sphinx_gallery_thumbnail_number = 3

import matplotlib.pyplot as plt

import fednet_emu as fe

CHOICES = {
    "1 epoch": {"algorithm.local_epochs": 1},
    "2 epochs": {"algorithm.local_epochs": 2},
    "8 epochs": {"algorithm.local_epochs": 8},
    "2 epochs, 10 dBm": {"algorithm.local_epochs": 2, "channel.device.tx_power_dbm": 10},
}
SETTINGS = {"stop.rounds": 400, "stop.energy_j": 10.0}
runs = {name: fe.run("quickstart", seed=1, settings=SETTINGS | choice) for name, choice in CHOICES.items()}

# %%
# Accuracy against the energy spent.

fe.plot(list(runs.values()), "accuracy", against="energy", labels=list(runs))

# %%
# Accuracy against simulated time:

fe.plot(list(runs.values()), "accuracy", against="time", labels=list(runs))

# %%
# The parts of the energy. For these boards the radio consumes more than the processor, so eight epochs save energy: a
# round needs more computing, but far fewer rounds are needed. At 10 dBm an upload takes half the energy, but rounds
# take four times as long; the energy of receiving is unchanged, and the idle energy is higher.

PARTS = {
    "computing": "compute_j",
    "sending": "transmit_j",
    "receiving": "rx_energy_j",
    "idle power": "idle_j",
    "base station": "station_j",
}
figure, axes = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
start = [0.0] * len(runs)
for part, column in PARTS.items():
    energy_j = [run.summary[column] for run in runs.values()]
    axes.barh(list(runs), energy_j, left=start, label=part)
    start = [before + more for before, more in zip(start, energy_j, strict=True)]
axes.set(xlabel="Energy (J)")
axes.invert_yaxis()
figure.legend(loc="outside upper center", ncols=5, fontsize="small")

"""
Groups formed from interference
===============================

Devices in seven small cells share one band. If the members of a group send simultaneously, their rates depend on the
separation of their signals. Members of random groups interfere. Groups formed from the path gains send with the lowest
powers at which every member reaches the target SINR. A higher target gives more groups, with faster links. Which target
gives the shortest cycle?
"""

# sphinx_gallery_tags = ["cyclic", "interference"]

import matplotlib.pyplot as plt

import fednet_emu as fe

SETTINGS = {
    "data": "digits",
    "devices.count": 21,
    "partition.min_samples": 5,
    "algorithm.lr": 0.2,
    "stop.rounds": 45,
    "evaluation.every_rounds": 3,
}
STRUCTURES = {
    "random, 4 groups": {"kind": "random", "groups": 4},
    "interference, 0 dB": {"kind": "interference", "sinr_db": 0},
    "interference, 5 dB": {"kind": "interference", "sinr_db": 5},
    "interference, 10 dB": {"kind": "interference", "sinr_db": 10},
}
runs = {
    name: fe.run("cyclic_interference", seed=0, settings=SETTINGS | {"algorithm.structure": structure})
    for name, structure in STRUCTURES.items()
}

# %%
# The number of groups that were formed, and the mean duration of one group's turn.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3), layout="constrained")
for place, run in enumerate(runs.values()):
    turns = run.series("cyclic_turns")
    left.barh(place, turns["groups"].iloc[0], color=f"C{place}")
    right.barh(place, (turns["ended_s"] - turns["started_s"]).mean(), color=f"C{place}")
left.set(xlabel="Groups", yticks=range(len(runs)), yticklabels=list(runs))
right.set(xlabel="Mean turn (s)", yticks=[])
left.invert_yaxis()
right.invert_yaxis()

# %%
# Together, these two numbers determine how fast the model learns.

fe.plot(list(runs.values()), "accuracy", against="time", labels=list(runs))

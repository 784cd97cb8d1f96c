"""
Stragglers and deadlines
========================

Computing times have a heavy tail: most devices of a cohort are fast, and one is slow. A deadline ends the round without
the slow device. It saves time, but it loses updates that have cost energy. Which deadline is best?
"""

# sphinx_gallery_tags = ["stragglers", "deadline"]

import matplotlib.pyplot as plt

import fednet_emu as fe

SETTINGS = {
    "devices.straggler": {"kind": "pareto", "alpha": 1.2},
    "network.uplink.access": "ofdma",
    "stop.rounds": 100,
    "stop.simulated_s": 25,
}
DEADLINES_S = {"no deadline": None, "1 s": 1.0, "0.5 s": 0.5, "0.3 s": 0.3}
runs = {
    name: fe.run("quickstart", seed=2, settings=SETTINGS | {"algorithm.deadline_s": deadline_s})
    for name, deadline_s in DEADLINES_S.items()
}

# %%
# The lengths of the rounds. Without a deadline, one slow device delays all others from time to time.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for name, run in runs.items():
    lengths_s = (run.rounds["ended_s"] - run.rounds["started_s"]).sort_values().to_numpy()
    left.plot(lengths_s, [(rank + 1) / len(lengths_s) for rank in range(len(lengths_s))], label=name)
left.set(xlabel="Length of a round (s)", ylabel="Share of rounds", xscale="log")
left.legend()
right.bar(list(runs), [run.rounds["arrived"].mean() for run in runs.values()])
right.set(xlabel="Deadline", ylabel="Updates that arrive, of 10")

# %%
# The effect on learning: accuracy against simulated time.

fe.plot(list(runs.values()), "accuracy", against="time", labels=list(runs))

# %%
# Time and energy to an accuracy of 0.9. In this example half a second is best: within 0.3 s only six updates of ten
# arrive, and the energy of the others is wasted.

for name, run in runs.items():
    first = run.evaluations.query("accuracy >= 0.9").iloc[0]
    print(f"{name:12} {first['simulated_s']:5.1f} s {first['energy_j']:5.1f} J")

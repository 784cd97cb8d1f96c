"""
Asynchronous against synchronous
================================

Ten workers have one digit each, and their computing times vary widely. A synchronous master waits for all workers in
each step. An asynchronous master (ASPIRE-EASE) continues with the first reports, and waits only for a worker whose last
report is too old.
"""

# sphinx_gallery_tags = ["asynchronous", "robust", "stragglers"]

import fednet_emu as fe

SETTINGS = {
    "devices.count": 10,
    "devices.straggler": {"kind": "log-normal", "sigma": 1.2},
    "attack": None,
    "algorithm.prior.suspects": [],
    "stop.rounds": 100000,
    "stop.simulated_s": 40,
}
ACTIVE = {"waits for one": 1, "for three": 3, "for all ten": None}
EVERY = {"waits for one": 100, "for three": 30, "for all ten": 10}
runs = {
    name: fe.run(
        "aspire_digits",
        seed=0,
        settings=SETTINGS | {"algorithm.active": active, "evaluation.every_rounds": EVERY[name]},
    )
    for name, active in ACTIVE.items()
}

# %%
# The accuracy of the worst worker, which a robust method tries to improve, against simulated time.

fe.plot(list(runs.values()), "worst_accuracy", against="time", labels=list(runs))

# %%
# If the master waits for all workers, most of them are idle most of the time. If it does not wait, reports refer to
# older models.

for name, run in runs.items():
    steps = run.summary["rounds"]
    busy_s = (run.computes["ended_s"] - run.computes["started_s"]).sum() / run.summary["simulated_s"]
    print(f"{name:16} {steps:5} steps, workers busy {busy_s / 10:4.0%} of the time")

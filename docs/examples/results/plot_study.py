"""
A study: how large is a difference?
===================================

One run is one random draw of channels, stragglers and data. A study repeats each setting with several seeds. Runs with
equal seeds have equal channels, so settings are compared seed by seed.
"""

# sphinx_gallery_tags = ["study", "access"]

import fednet_emu as fe

TDMA, OFDMA = "network.uplink.access=tdma", "network.uplink.access=ofdma"
study = fe.sweep(
    "quickstart",
    grid={"network.uplink.access": ["tdma", "ofdma"]},
    seeds=4,
    workers=2,
    settings={"stop.rounds": 8, "channel.bandwidth_hz": 2.0e5},
)
study.runs[["network.uplink.access", "seed", "simulated_s", "uplink_bit", "energy_j", "accuracy"]]

# %%
# Means over the seeds, with 95 % bands.

study.plot("accuracy", against="time")

# %%
# Accuracy against energy:

study.plot("accuracy", against="energy")

# %%
# The comparison in words. Differences are paired by seed, so that common effects (the positions and the data of the
# boards) cancel out.

print(study.compare(TDMA, OFDMA))

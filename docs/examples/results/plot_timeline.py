"""
Where does the time go?
=======================

The timeline of a run shows who computes, waits and sends. The critical path of each round says which of that decided
when the round ended, and replays of the run with one thing changed say what could make it faster.
"""

# sphinx_gallery_tags = ["timeline", "critical path", "uplink"]
import fednet_emu as fe

run = fe.run("quickstart", seed=1, settings={"stop.rounds": 10})
run.plot("timeline", until_s=3)

# %%
# One device at a time may use the uplink, so most devices wait. What decided when rounds ended, and what would help:

print(run.explain())

# %%
# The same with parts of the band for all at once:

parallel = fe.run("quickstart", seed=1, settings={"stop.rounds": 10, "network.uplink.access": "ofdma"})
parallel.plot("timeline", until_s=3)

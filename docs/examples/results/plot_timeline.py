"""
Which activities take the time?
===============================

The timeline of a run shows when each device computes, waits and sends. The critical path of each round shows which
activities determined the end of the round. Replays of the run with one change show how rounds could be shorter.
"""

# sphinx_gallery_tags = ["timeline", "critical path", "uplink"]
import fednet_emu as fe

run = fe.run("quickstart", seed=1, settings={"stop.rounds": 10})
run.plot("timeline", until_s=3)

# %%
# One device at a time may use the uplink, so most devices wait. The causes of the length of the rounds, and
# possible remedies:

print(run.explain())

# %%
# The same run with simultaneous uploads on parts of the band:

parallel = fe.run("quickstart", seed=1, settings={"stop.rounds": 10, "network.uplink.access": "ofdma"})
parallel.plot("timeline", until_s=3)

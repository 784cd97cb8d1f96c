"""
Device-to-device clusters
=========================

Thirty-five devices in seven clusters push scaled updates to their neighbours, over links without cost for the base
station. The server then needs uploads of only some devices of each cluster; it computes their number from the reported
degrees. A second run has no transmissions between devices.
"""

# sphinx_gallery_tags = ["device to device", "clusters"]

import matplotlib.pyplot as plt

import fednet_emu as fe

SETTINGS = {
    "devices.count": 35,
    "network.sidelink.topology.edges.degree": 4,
    "stop.rounds": 30,
    "evaluation.every_rounds": 2,
}
runs = {
    "pushing": fe.run("d2d_clusters", seed=0, settings=SETTINGS),
    "no pushes": fe.run(
        "d2d_clusters",
        seed=0,
        settings={key: its for key, its in SETTINGS.items() if "edges" not in key}
        | {"network.sidelink.topology.edges": "none"},
    ),
}

# %%
# The number of devices that upload in each round; it falls once the server knows the clusters.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for name, run in runs.items():
    left.plot(run.rounds["round"], run.rounds["invited"], label=name)
    spent_mbit = (run.evaluations["uplink_bit"]) / 1e6
    right.plot(spent_mbit, run.evaluations["accuracy"], label=name)
left.set(xlabel="Round", ylabel="Devices that upload", ylim=(0, None))
right.set(xlabel="Uplink (Mbit)", ylabel="Test accuracy")
left.legend()

# %%
# The bits saved on the uplink are sent over short links between devices instead.

for name, run in runs.items():
    summary = run.summary
    print(
        f"{name:15} uplink {summary['uplink_bit'] / 1e6:5.1f} Mbit, sidelinks {summary['sidelink_bit'] / 1e6:5.1f} Mbit"
    )

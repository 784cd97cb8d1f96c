"""
Vehicles: cars at a crossing
============================

Forty devices ride in cars that Eclipse SUMO has moved through a crossing with a traffic light. They come, wait at red,
and leave, often in the middle of an upload. Two small cells at the crossing serve them.
"""

# sphinx_gallery_tags = ["mobility", "availability"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import numpy as np

import fednet_emu as fe

run = fe.run("crossing", settings={"model.hidden": [64]})

# %%
# Where the cars are at four instants, in the colour of the cell that serves them. Who is away is not on the map; that
# of ``fednet report`` plays all instants, with the uploads under way.

scene = run.table("scene")
stations, cars = scene[scene["device"] < 0], scene[scene["device"] >= 0]
instants = np.unique(cars["simulated_s"])[[5, 15, 25, 35]]
figure, panels = plt.subplots(1, 4, figsize=(9, 2.8), sharex=True, sharey=True, layout="constrained")
for axes, at_s in zip(panels, instants, strict=True):
    now = cars[(cars["simulated_s"] == at_s) & cars["there"]]
    axes.scatter(now["x_m"], now["y_m"], c=[f"C{cell}" for cell in now["cell"]], s=14)
    axes.plot(stations["x_m"], stations["y_m"], "k^", markersize=8)
    axes.set(title=f"{at_s:.0f} s, {len(now)} cars", xlabel="East (m)", aspect="equal")
panels[0].set(ylabel="North (m)")

# %%
# Outcomes of uploads, by when they began: a car that leaves loses what is under way, and what its device asks for
# later is lost as away until it rides in the next car.

uploads = run.transfers.query("direction == 'uplink'")
window = (uploads["requested_s"] // 30 * 30).astype(int)
counts = (
    uploads.groupby([window, uploads["loss_reason"].astype(str).replace("", "arrived")]).size().unstack(fill_value=0)
)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
counts.plot.bar(stacked=True, ax=axes, width=0.9)
axes.set(xlabel="Asked for at (s)", ylabel="Uploads")
axes.legend(title="")

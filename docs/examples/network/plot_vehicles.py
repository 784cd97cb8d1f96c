"""
Vehicles: cars at a crossing
============================

Forty devices are in cars whose movement through a crossing with a traffic light was simulated by Eclipse SUMO. The cars
arrive, wait at red lights and leave, often during an upload. Two small cells at the crossing serve them.
"""

# sphinx_gallery_tags = ["mobility", "availability"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import numpy as np

import fednet_emu as fe

run = fe.run("crossing", settings={"model.hidden": [64]})

# %%
# Positions of the cars at four instants; the colour is the serving cell. Absent devices are not on the map. The map of
# ``fednet report`` shows all instants, with the uploads in progress.

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
# Outcomes of uploads, by the time of their request. If a car leaves, transmissions in progress are lost. Later requests
# of its device are lost with the reason away, until the device is in the next car.

uploads = run.transfers.query("direction == 'uplink'")
window = (uploads["requested_s"] // 30 * 30).astype(int)
counts = (
    uploads.groupby([window, uploads["loss_reason"].astype(str).replace("", "arrived")]).size().unstack(fill_value=0)
)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
counts.plot.bar(stacked=True, ax=axes, width=0.9)
axes.set(xlabel="Asked for at (s)", ylabel="Uploads")
axes.legend(title="")

"""
Mobility: phones on foot
========================

Thirty phones move on foot around a small cell in a street. Distance, line of sight and shadowing depend on the
position, so a phone's rate changes within some ten metres. The slowest phone of a cohort determines the duration of its
round.
"""

# sphinx_gallery_tags = ["mobility", "channel"]

import matplotlib.pyplot as plt

import fednet_emu as fe

SETTINGS = {
    "devices.placement.radius_m": 300,
    "devices.overhead_s": 5,  # of each computation, so that phones move a relevant distance during a round
    "model": "softmax",
    "network.uplink.access": "tdma",
    "stop.rounds": 60,
}
walking = fe.run("mobile_phones", seed=3, settings=SETTINGS)
standing = fe.run("mobile_phones", seed=3, settings=SETTINGS | {"devices.mobility": "static"})

# %%
# Rates of four phones; each point is an upload. Walking phones pass through good and bad positions. The rates of
# standing phones depend on their position and vary only with fading.

figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for axes, (title, run) in zip(panels, {"walking": walking, "standing": standing}.items(), strict=True):
    uplink = run.transfers.query("direction == 'uplink' and loss_reason == ''")
    rate_mbps = uplink["transmitted_bit"] / (uplink["ended_s"] - uplink["started_s"]) / 1e6
    for device in uplink["sender"].value_counts().index[:4]:
        own = uplink["sender"] == device
        axes.semilogy(
            uplink["ended_s"][own] / 60, rate_mbps[own], "o-", markersize=3, linewidth=0.8, label=f"phone {device}"
        )
    axes.set(title=title, xlabel="Simulated time (min)")
    axes.legend()
panels[0].set(ylabel="Uplink rate (Mbit/s)")

# %%
# The mean upload time of each phone, shortest first. Standing phones are always fast or always slow; most walking
# phones are slow at some times.

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, run in {"walking": walking, "standing": standing}.items():
    uplink = run.transfers.query("direction == 'uplink' and loss_reason == ''")
    mean_s = (uplink["ended_s"] - uplink["started_s"]).groupby(uplink["sender"]).mean().sort_values()
    axes.semilogy(range(1, len(mean_s) + 1), mean_s, label=name)
axes.set(xlabel="Phones, in order", ylabel="Mean upload (s)")
axes.legend()

"""
Your Flower app on a 5G cell in one command
===========================================

A Flower app runs unchanged on the emulated network. This page runs the example app, FedAvg of a small perceptron over
ten clients, on a 5G cell. Unlike the other pages, it requires `pip install '.[flower]'`; the command in the folder of
the repository is `python docs/examples/learning/show_flower_app.py`. The figures are in `results/reference/flower_app`.

.. image:: ../../../results/reference/flower_app/accuracy.png
   :width: 560
   :alt: Accuracy of the app against simulated time in a wide and in a narrow band
"""

# sphinx_gallery_tags = ["Flower", "5G"]
# sphinx_gallery_thumbnail_path = '../results/reference/flower_app/accuracy.png'
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import fednet_emu as fe

APP = "examples/flower_quickstart"
OUT = Path("results/flower_app")

# %%
# The command places the clients around a small base station in a street, at 3.5 GHz with 20 MHz. The first two settings
# select a 5G radio, with subcarriers of 30 kHz and the table of modulation and coding schemes. With the third setting a
# device always uses the whole band; by default a device with a weak link uses only a part of it.

NR = ["--set", "channel.subcarrier_spacing_khz=30", "--set", "channel.rate=nr-mcs", "--set", "channel.narrowing=off"]
FLOWER = [sys.executable, "-m", "fednet_emu", "flower"]
subprocess.run([*FLOWER, APP, *NR, "--out", OUT / "wide", "--force", "--no-plots"], check=True)

# %%
# The same app in a quarter of the band:

LESS = ["--set", "channel.bandwidth_hz=5e6"]
subprocess.run([*FLOWER, APP, *NR, *LESS, "--out", OUT / "narrow", "--force", "--no-plots"], check=True)

# %%
# Accuracy against simulated time, which Flower's own simulation does not have. The narrow band is faster.

runs = {"20 MHz": fe.open(OUT / "wide"), "5 MHz": fe.open(OUT / "narrow")}
figure = fe.plot(list(runs.values()), "accuracy", against="time", labels=list(runs))
figure.savefig(OUT / "accuracy.png", dpi=110, bbox_inches="tight")

# %%
# Which devices make the rounds long? The figure shows the mean time from the request of a model upload to its arrival.
# For most devices the narrow band is slower. The mean signal-to-noise ratio of device 1, however, is -10 dB over 20
# MHz, which is too low for the lowest modulation and coding scheme. The device waits for favourable fading, both for
# its uploads and for the broadcast of the model. Over 5 MHz its ratio is -3 dB.
#
# .. image:: ../../../results/reference/flower_app/uploads.png
#    :width: 560
#    :alt: Mean time of an upload of the model in a wide and in a narrow band, by device

figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
for place, (name, run) in enumerate(runs.items()):
    models = run.transfers.query("direction == 'uplink' and size_bit > 1e4")  # others are evaluation results
    mean_s = (models["ended_s"] - models["requested_s"]).groupby(models["sender"]).mean()
    axes.bar(mean_s.index + 0.4 * place - 0.2, mean_s * 1e3, width=0.4, label=name)
axes.set(xlabel="Device", ylabel="Mean upload (ms)", yscale="log", xticks=range(10))
axes.legend()
figure.savefig(OUT / "uploads.png", dpi=110, bbox_inches="tight")

# %%
# Totals of both runs:

for name, run in runs.items():
    total = run.summary
    print(f"{name:10} {total['simulated_s']:6.2f} s {total['energy_j']:6.2f} J  accuracy {total['accuracy']:.3f}")

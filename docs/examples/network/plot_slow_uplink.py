"""
Why is my uplink slow?
======================

Five small computers upload SqueezeNet, 2.91 MB, at the same moment: over private 5G cells of 20, 40 and 100 MHz, over
Wi-Fi of 80 and 20 MHz, and over gigabit Ethernet, each with TCP and gRPC. The files in `scenarios/cells` describe these
networks; a scenario takes one by `include: cells/wifi-ac80`. Where does the time go: to the wait for a grant, to the
air, to slow start?
"""

# sphinx_gallery_tags = ["access", "transport", "uplink"]

import matplotlib.pyplot as plt
import pandas as pd

import fednet_emu as fe

CELLS = ("oai-n78-20mhz", "oai-n78-40mhz", "srsran-n78-100mhz", "wifi-n20", "wifi-ac80", "gigabit")
COLUMNS = {"grant": "grant_delay_s", "setup": "connection_setup_s", "gap": "ack_wait_s", "tail": "reception_delay_s"}
PARTS = {"grant": "wait for a grant", "air": "on the air", "gap": "slow start's gaps", "tail": "decoding, wire"}


def upload(cell, devices):
    """The last upload of a round in which this number of devices sends at once, and its parts in ms."""
    run = fe.run(
        {
            "title": cell,
            "include": f"cells/{cell}",
            "devices": {
                "count": devices,
                "placement": {"kind": "disc", "radius_m": 6, "inner_radius_m": 4},
                "speed": {"kind": "fixed", "flop_per_s": 1e12},
            },
            "data": {"kind": "synthetic", "features": [3, 32, 32], "n_samples": 480, "n_test": 100},
            "partition": "iid",
            "model": {"kind": "mlp", "hidden": [236]},  # 727,598 numbers; SqueezeNet has 727,626
            "algorithm": {"kind": "fedavg", "cohort": devices, "batch_size": 32},
            "stop": {"rounds": 1},
        },
        timing_only=True,
    )
    last = run.transfers.query("direction == 'uplink'").sort_values("ended_s").iloc[-1]
    parts = {part: 1e3 * last[column] for part, column in COLUMNS.items()}
    whole_ms = 1e3 * (last.ended_s - last.requested_s)
    return parts | {"air": whole_ms - sum(parts.values()), "whole": whole_ms}


# %%
# One device alone, and five together, in ms. The connection stands from the download on, so that set-up takes nothing;
# a grant of 5G takes 10 to 30 ms, which counts where the rest is short.

alone, five = (pd.DataFrame({cell: upload(cell, devices) for cell in CELLS}).T for devices in (1, 5))
columns = ["whole", *PARTS]
print("One upload (ms)", alone[columns].round(1).to_string(), sep="\n")
print("Five at once, the last one (ms)", five[columns].round(1).to_string(), sep="\n")

# %%
# The parts as shares of a lone upload. On the large 5G cell a seventh goes to the gaps of slow start: a window that
# doubles every 20 ms is too small for 73 Mbit/s at first. On the small cells, and with five devices on any of them, all
# that helps is a faster air: more band, or on the cells of OpenAirInterface, where link adaptation climbs from MCS 9 in
# each upload, fresh channel reports, which save half a second.

figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
left = 0.0
for part, name in PARTS.items():
    share = 100 * alone[part] / alone["whole"]
    axes.barh(alone.index, share, left=left, label=name)
    left = left + share
axes.set(xlabel="Share of a lone upload (%)", xlim=(0, 100))
axes.invert_yaxis()
figure.legend(loc="outside upper center", ncols=4, fontsize="small")

# %%
# `fednet explain` says the same of whole rounds of your own scenario, and what a remedy would give.

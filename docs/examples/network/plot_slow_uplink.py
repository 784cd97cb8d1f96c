"""
Why is my uplink slow?
======================

Five small computers upload SqueezeNet, 2.91 MB, at the same moment: over private 5G cells of 20, 40 and 100 MHz, over
Wi-Fi of 80 and 20 MHz, and over gigabit Ethernet, each with TCP and gRPC. The files in `scenarios/cells` describe these
networks; a scenario uses one with `include: cells/wifi-ac80`. Which part takes the time: the wait for a grant, the
airtime, or slow start?
"""

# sphinx_gallery_tags = ["access", "transport", "uplink"]

import matplotlib.pyplot as plt
import pandas as pd

import fednet_emu as fe

CELLS = ("oai-n78-20mhz", "oai-n78-40mhz", "srsran-n78-100mhz", "wifi-n20", "wifi-ac80", "gigabit")
COLUMNS = {"grant": "grant_delay_s", "setup": "connection_setup_s", "gap": "ack_wait_s", "tail": "reception_delay_s"}
PARTS = {"grant": "wait for a grant", "air": "on the air", "gap": "slow start's gaps", "tail": "decoding, wire"}


def upload(cell, devices):
    """Return the duration, and its parts, of the last upload in ms if `devices` devices send at once."""
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
            "model": {"kind": "mlp", "hidden": [236]},  # 727,598 parameters; SqueezeNet has 727,626
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
# One device alone, and five together, in ms. The connection exists since the download, so its set-up takes no time. A
# grant in 5G takes 10 to 30 ms, which matters if the other parts are short.

alone, five = (pd.DataFrame({cell: upload(cell, devices) for cell in CELLS}).T for devices in (1, 5))
columns = ["whole", *PARTS]
print("One upload (ms)", alone[columns].round(1).to_string(), sep="\n")
print("Five at once, the last one (ms)", five[columns].round(1).to_string(), sep="\n")

# %%
# The parts as shares of the upload of one device. On the large 5G cell, a seventh of the time is gaps of slow start: a
# window that doubles every 20 ms is at first too small for 73 Mbit/s. On the small cells, and with five devices on any
# cell, only a shorter airtime helps. It needs more bandwidth or, on the cells of OpenAirInterface, fresh channel
# reports, which save half a second, because link adaptation starts at MCS 9 in each upload.

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
# `fednet explain` gives the same analysis for the rounds of any scenario, and estimates the gain of remedies.

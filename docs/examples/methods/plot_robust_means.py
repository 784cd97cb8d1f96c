"""
Means that withstand malicious devices
======================================

Six of twenty devices label every digit as zero. A mean includes their updates; a median, a trimmed mean and multi-Krum
exclude updates that are far from the others.
"""

# sphinx_gallery_tags = ["attack", "aggregation", "averaging"]
import matplotlib.pyplot as plt

import fednet_emu as fe

AGGREGATIONS = {
    "mean": "mean",
    "median": "median",
    "trimmed mean": {"kind": "trimmed-mean", "count": 6},
    "Krum": {"kind": "krum", "byzantine": 6},
    "multi-Krum": {"kind": "multi-krum", "byzantine": 6},
}
runs = {
    name: fe.run("flipped_labels", seed=0, settings={"algorithm.aggregation": aggregation, "stop.rounds": 20})
    for name, aggregation in AGGREGATIONS.items()
}

# %%
# Accuracy after twenty rounds, and the share of other digits that are classified as zero.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True, layout="constrained")
left.barh(list(runs), [run.accuracy for run in runs.values()])
right.barh(list(runs), [run.summary["attack_success"] for run in runs.values()], color="tab:red")
left.set(xlabel="Test accuracy", xlim=(0, 1))
right.set(xlabel="Taken for a zero")
left.invert_yaxis()

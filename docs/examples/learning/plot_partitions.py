"""
Who has which data
==================

The same digits, dealt to twelve devices in four ways. Areas are numbers of samples with a label, bars are their sums.
With ``dirichlet`` the share of each label is drawn, with ``labels-per-device`` each device has few labels, and with
``quantity-skew`` labels are alike and numbers differ.
"""

# sphinx_gallery_tags = ["data", "partition"]
import matplotlib.pyplot as plt

import fednet_emu as fe

PARTITIONS = {
    "alike": {"kind": "iid"},
    "dirichlet, alpha 0.3": {"kind": "dirichlet", "alpha": 0.3},
    "two labels each": {"kind": "labels-per-device", "labels": 2},
    "numbers differ, beta 0.5": {"kind": "quantity-skew", "beta": 0.5},
}
SETTINGS = {"devices.count": 12, "algorithm.cohort": 12, "stop.rounds": 15, "stop.accuracy": None}

# %%
# Two of the four as the package draws them, before anything is run:

drawn = SETTINGS | {"partition": PARTITIONS["dirichlet, alpha 0.3"]}
fe.plot(fe.check("quickstart", settings=drawn), "data")

# %%

few = SETTINGS | {"partition": PARTITIONS["two labels each"]}
fe.plot(fe.check("quickstart", settings=few), "data")

# %%
# What that does to federated averaging after fifteen rounds. Bars are the accuracy of the global model.

accuracies = {
    name: fe.run("quickstart", seed=1, settings=SETTINGS | {"partition": partition}).accuracy
    for name, partition in PARTITIONS.items()
}
figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.barh(list(accuracies), list(accuracies.values()))
axes.set(xlabel="Test accuracy", xlim=(0, 1))
axes.invert_yaxis()

"""
Partitions of the data
======================

The same digits are distributed over twelve devices in four ways. Areas show the number of samples per label; bars show
the number of samples per device. With ``dirichlet`` the share of each label is drawn at random. With
``labels-per-device`` each device has few labels. With ``quantity-skew`` the label distributions are equal and the
numbers of samples differ.
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
# The package draws a partition before a run. Two of the four partitions:

drawn = SETTINGS | {"partition": PARTITIONS["dirichlet, alpha 0.3"]}
fe.plot(fe.check("quickstart", settings=drawn), "data")

# %%

few = SETTINGS | {"partition": PARTITIONS["two labels each"]}
fe.plot(fe.check("quickstart", settings=few), "data")

# %%
# The effect on federated averaging after fifteen rounds. Bars show the accuracy of the global model.

accuracies = {
    name: fe.run("quickstart", seed=1, settings=SETTINGS | {"partition": partition}).accuracy
    for name, partition in PARTITIONS.items()
}
figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.barh(list(accuracies), list(accuracies.values()))
axes.set(xlabel="Test accuracy", xlim=(0, 1))
axes.invert_yaxis()

"""
A custom algorithm
==================

This script implements FedAvgM (Hsu, Qi, Brown 2019), federated averaging with momentum at the server, in a dozen lines.
An algorithm is a class: its fields are the settings, and its generator follows the paper's pseudo-code. An operation
that takes simulated time is an event, used with ``yield``. The run receives the algorithm as an object, so the
algorithm needs no name.
"""

# sphinx_gallery_tags = ["own algorithm", "averaging"]

import fednet_emu as fe


class FedAvgM(fe.Algorithm):
    """Federated averaging with momentum at the server."""

    cohort: int = 10
    lr: float = 0.1
    momentum: float = 0.0

    def run(self, fed: fe.Federation) -> fe.Process:
        """Process of the server: invite devices, wait, average the models, apply momentum."""
        w = fed.initial_model()
        velocity = 0 * w
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            arrived = yield from fed.exchange(cohort, w, self.client, t)
            if arrived:
                velocity = self.momentum * velocity + (arrived.average("uniform") - w)
                w = w + velocity
            fed.end_of_round(w)

    def client(self, fed: fe.Federation, k: fe.Device, w, t: int) -> fe.Process:
        """Process of a device: train, and return the parameters to send."""
        trained = yield k.train(w, fe.SgdPlan(lr=self.lr, batch_size=20, epochs=1), t)
        return trained.params


runs = {
    momentum: fe.run("quickstart", algorithm=FedAvgM(momentum=momentum), seed=1, settings={"stop.rounds": 20})
    for momentum in (0.0, 0.5, 0.8)
}

# %%
# The boards, channels and batches are the same in all three runs.

fe.plot(list(runs.values()), "accuracy", against="time", labels=[f"momentum {momentum}" for momentum in runs])

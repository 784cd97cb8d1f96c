"""
An algorithm of one's own
=========================

Fifteen lines on top of a base class: the server keeps the momentum of its averages (FedAvgM, Hsu, Qi, Brown 2019). An
algorithm is a class whose fields are its settings, and a generator that reads like the paper's pseudo-code: what
takes simulated time is an event, and is used with ``yield``. It is handed over as an object and needs no name.
"""

import fednet_emu as fe


class FedAvgM(fe.Algorithm):
    """Federated averaging with momentum at the server."""

    cohort: int = 10
    lr: float = 0.1
    momentum: float = 0.0

    def run(self, fed: fe.Federation) -> fe.Process:
        """The server: invite, wait, average, keep the direction."""
        w = fed.initial_model()
        velocity = fed.defer(lambda start: start * 0, w)
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            replies = yield fed.gather(self.client(fed, k, w, t) for k in cohort)
            arrived = [reply.payload for reply in replies if not reply.lost]
            if arrived:
                velocity = fed.defer(self.direction, velocity, w, arrived)
                w = fed.defer(lambda at, v: at + v, w, velocity)
            fed.end_of_round(w, invited=len(cohort), arrived=len(arrived))

    def client(self, fed: fe.Federation, k: fe.Device, w, t: int) -> fe.Process:
        """A device: receive, train, send."""
        got = yield fed.downlink(k, w)
        if got.lost:
            return got
        plan = fe.SgdPlan(lr=self.lr, batch_size=20, epochs=1)
        trained = yield k.train(got.payload, plan, t)
        return (yield fed.uplink(k, trained.params))

    def direction(self, velocity, w, arrived):
        """The mean update, and a part of the last direction."""
        return self.momentum * velocity + sum(w_k - w for w_k in arrived) / len(arrived)


runs = {
    momentum: fe.run("quickstart", algorithm=FedAvgM(momentum=momentum), seed=1, settings={"stop.rounds": 20})
    for momentum in (0.0, 0.5, 0.8)
}

# %%
# All three runs have the same boards, channels and batches.

fe.plot(list(runs.values()), "accuracy", against="time", labels=[f"momentum {momentum}" for momentum in runs])

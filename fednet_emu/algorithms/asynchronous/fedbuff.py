"""Buffered asynchronous aggregation.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: "Federated Learning with Buffered Asynchronous Aggregation",
AISTATS 2022, https://proceedings.mlr.press/v151/nguyen22b.html, Algorithm 1:

- a client receives w, takes local steps of SGD, and sends the difference delta of the two models: `client`;
- the server adds up K deltas, and then sets w <- w + server_lr (sum of s(staleness) delta) / K: `run`;
- clients are sampled asynchronously, so that `concurrency` of them are busy: `next`.

Differences from the paper:

- delta is the new model minus the old model, so it is added instead of subtracted. Running statistics (batch norm) are
  sent unchanged, and the server takes their mean, weighted by staleness.
- There is no secure aggregation and no differential privacy; the buffer is on the server.
- Lost or late replies are left out, and their clients can be invited again.
"""

from __future__ import annotations

from pydantic import Field

from fednet_emu.algorithms.asynchronous.dispatcher import Arrival, Concurrent, record_arrival
from fednet_emu.algorithms.asynchronous.staleness import AnyStaleness, Polynomial
from fednet_emu.federation import Deferred, Device, Federation, Process, Reply, moved_by_sum


class FedBuff(Concurrent):
    """After every `buffer_size` arriving updates the server takes a step along their mean; each step is a round."""

    kind = "fedbuff"
    buffer_size: int = Field(10, gt=0)
    """Number of updates for one step of the server (K in the paper); 10 in the paper's experiments."""
    server_lr: float = Field(1.0, ge=0)
    """Step size of the server, by which it multiplies the mean update."""
    staleness: AnyStaleness = Polynomial(a=0.5)
    """Weight of an update as a function of staleness, the number of server steps since the device received its model;
    by default 1 / sqrt(1 + staleness), as in the paper's experiments. The weighted sum is divided by K, not by the sum
    of the weights."""

    def answers(self, count: int) -> int:
        return self.buffer_size

    def run(self, fed: Federation) -> Process:
        w = fed.initial_model()
        for t in fed.rounds():
            w, buffer = fed.published(w), list[Arrival]()
            while len(buffer) < self.buffer_size:
                buffer.append((yield from self.next(fed, t, w, self.client)))
            weights = [self.staleness.weight(record_arrival(fed, t, arrival)) / len(buffer) for arrival in buffer]
            updates, start = [arrival.payload for arrival in buffer], fed.without_statistics(w)
            w = fed.accumulate(moved_by_sum, updates, start, weights, self.server_lr, fed.n_statistics)
            fed.end_of_round(w)

    def client(self, fed: Federation, k: Device, w: Deferred, n: int) -> Process:
        training = k.train(w, self.plan, n, difference=True)
        del w  # lets the model be freed as soon as the difference no longer needs it
        delta = yield training
        return Reply(delta, since=0)

"""An algorithm of its own."""

from pydantic import Field

import fednet_emu as fe


class FirstOnly(fe.Algorithm):
    """Each round one device trains, in turn, and its model is taken."""

    kind = "first-only"
    lr: float = Field(gt=0)

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for t in fed.rounds():
            arrived = yield from fed.exchange([fed.device(t % fed.n_devices)], w, self.client, t)
            w = arrived.models[0]
            fed.end_of_round(w)

    def client(self, fed: fe.Federation, k: fe.Device, w, t: int) -> fe.Process:
        trained = yield k.train(w, fe.SgdPlan(lr=self.lr, batch_size=10, epochs=1), t)
        return trained.params

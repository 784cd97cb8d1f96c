"""An algorithm of its own."""

from pydantic import Field

import fednet_emu as fe


class FirstOnly(fe.Algorithm):
    """Each round one device trains, in turn, and its model is taken."""

    kind = "first-only"
    lr: float = Field(gt=0)

    def run(self, fed: fe.Federation) -> fe.Process:
        """The server's process."""
        w, plan = fed.initial_model(), fe.SgdPlan(lr=self.lr, batch_size=10, epochs=1)
        for t in fed.rounds():
            device = fed.device(t % fed.n_devices)
            got = yield fed.downlink(device, w)
            trained = yield device.compute(fed.train(device, got.payload, plan, t))
            sent = yield fed.uplink(device, trained.params)
            w = sent.payload
            fed.end_of_round(w, invited=1, arrived=1)

"""What each device of a run did, spent and lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import COMPUTE_COLUMNS, RECEPTION_COLUMNS, TRANSFER_COLUMNS, activity_bars
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scene import Scene
from fednet_emu.analysis.targets import with_total_bits
from fednet_emu.analysis.time_split import time_split
from fednet_emu.arrays import Array
from fednet_emu.records.ledger import SCENE, SERVER

TRANSFERS = (*TRANSFER_COLUMNS, "receivers", "size_bit", "air_bit", "delivered_bit", "lost_bit", "energy_j",
             "receive_j", "cell")  # fmt: skip
COMPUTES = (*COMPUTE_COLUMNS, "flop", "energy_j")


@dataclass(frozen=True, eq=False)
class Usage:
    """What each device of a run did and spent: the tables are read once, and every quantity is computed once."""

    run: RunRecords

    @cached_property
    def scene(self) -> Scene | None:
        """Where devices are; None for a run that did not record it."""
        return Scene.of(self.run) if self.run.has(SCENE) else None

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return self.run.devices

    @cached_property
    def simulated_s(self) -> float:
        """Duration of the run in simulated seconds."""
        return float(self.run.summary["simulated_s"])

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """All transfers, each with an end; those of runs before cells were recorded are in cell 0."""
        whole = self.run.table("transfers")
        whole = whole.assign(cell=whole.get("cell", 0))
        return whole[list(TRANSFERS)].assign(ended_s=whole["ended_s"].fillna(self.simulated_s))

    @cached_property
    def receptions(self) -> pd.DataFrame:
        """The receivers of transfers that have several."""
        return self.run.table("receptions", RECEPTION_COLUMNS)

    @cached_property
    def computes(self) -> pd.DataFrame:
        """All computations, each with an end."""
        whole = self.run.table("computes", COMPUTES)
        return whole.assign(ended_s=whole["ended_s"].fillna(self.simulated_s))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """All rounds."""
        return self.run.table("rounds")

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """All evaluations, with their bits of all kinds in `total_bit`."""
        return with_total_bits(self.run.table("evaluations"))

    @cached_property
    def bars(self) -> pd.DataFrame:
        """What each device did when, see `activity_bars`."""
        return activity_bars(self.transfers, self.receptions, self.computes, self.simulated_s)

    @cached_property
    def split(self) -> dict[str, Array]:
        """Where the time of each device went, see `time_split`."""
        return time_split(self.bars, self.devices, self.simulated_s)

    @cached_property
    def lost_s(self) -> Array:
        """Seconds of each device in transfers that were lost and computations that were stopped, [devices].

        What the end of the run cut off does not count.
        """
        sent, heard, made = self.transfers, self.receptions, self.computes
        sent = sent.assign(lost=sent["lost"].astype(str).replace("end", ""))
        heard = heard.assign(lost=heard["lost"].astype(str).replace("end", ""))
        made = made.assign(stopped=made["stopped"].astype(str).replace("end", ""))
        if not (sent["lost"] != "").any() and not (heard["lost"] != "").any() and not (made["stopped"] != "").any():
            return np.zeros(self.devices)
        bars = activity_bars(sent, heard, made, self.simulated_s)
        failed = bars[bars["failed"] & (bars["device"] >= 0)]
        return self.per_device(failed["device"], failed["ended_s"] - failed["started_s"])

    @cached_property
    def energy_j(self) -> dict[str, Array]:
        """Joules of each device by cause, [devices]: what they send, receive and compute, and their idle power.

        What the receivers of one transmission draw is shared among them equally, as they all listen equally long.
        Idle power is `waiting` while a device does nothing else, and `idle` under whatever it does.
        """
        sent, made = self.transfers, self.computes
        spent = {
            kind: self.per_device(part["sender"], part["energy_j"])
            for kind in ("uplink", "sidelink")
            for part in [sent[(sent["kind"] == kind) & (sent["sender"] > SERVER)]]
        }
        alone = sent[sent["receiver"] > SERVER]
        heard = self.receptions.merge(sent[["transfer", "receive_j", "receivers"]], on="transfer")
        heard = heard[heard["receiver"] > SERVER]
        received = self.per_device(alone["receiver"], alone["receive_j"])
        received = received + self.per_device(heard["receiver"], heard["receive_j"] / heard["receivers"])
        computing = self.per_device(made["device"], made["energy_j"])
        return {**spent, "receiving": received, "computing": computing, **self._idle_j()}

    def _idle_j(self) -> dict[str, Array]:
        """Joules of idle power of each device, [devices] each; none where the scene is not known."""
        if self.scene is None or not self.scene.idle_w.any():
            return {}
        whole_j = self.scene.idle_w * self.simulated_s
        if self.run.summary.get("empty_share"):
            drawn = self.run.table("batteries", ("device", "idle_j"))
            whole_j = drawn.groupby("device")["idle_j"].last().to_numpy(np.float64)
        busy_s = self.simulated_s - self.split["idle"] - self.split["waiting"]
        return {"waiting": whole_j - self.scene.idle_w * busy_s, "idle": self.scene.idle_w * busy_s}

    def per_device(self, device: pd.Series[int], amount: pd.Series[float] | None = None) -> Array:
        """Sum of amounts, or their number, for each device, [devices]; the server's are left out."""
        here = device.to_numpy(np.int64)
        own = here > SERVER
        weights = None if amount is None else amount.to_numpy(np.float64)[own]
        return np.bincount(here[own], weights, minlength=self.devices).astype(np.float64)

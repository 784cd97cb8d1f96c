"""Over-the-air sums: all devices send at once, analogue, and the server receives the sum of their signals."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import Access, Allocation, RateInputs
from fednet_emu.radio.receiver.over_the_air import n_slots


class OverTheAir(Access):
    """Everybody sends at once, analogue, one entry per symbol, so that the server receives the sum of all vectors.

    A device divides its signal by its channel, so that all arrive with the same power eta, and is silent in a burst
    if its fading gain is below `cutoff` when that starts: truncated channel inversion, as in Zhu, Wang, Huang, TWC
    2020. A burst takes ceil(entries / symbols per slot) slots, whatever the number of devices.
    Ignored here: how devices get in step, how they learn their channels and the common scale of the signals, the
    peaks of the signals, and changes of the channel during a burst.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})

    slot_s: float = Field(1e-3, gt=0)
    """Duration of a slot in s."""

    symbols_per_slot: int | None = Field(None, gt=0)
    """Symbols of a slot, each of which carries one entry; null for bandwidth times `slot_s`, at least 1."""

    cutoff: float = Field(0.2, gt=0)
    """Fading gain |h|^2, of mean 1, below which a device is silent (g)."""

    budget: Literal["mean", "peak"] = "mean"
    """What the power of the device's radio bounds: its mean over the fading, silent bursts included, which may be
    exceeded in a weak channel; or the power in every burst."""

    snr_db: float | None = None
    """SNR eta / sigma^2 in dB at which each signal arrives; devices that would need more than their budget are silent.
    Null for the highest that all devices of a burst can reach, so that the weakest link decides."""

    csi_error: float = Field(0.0, ge=0, lt=1)
    """Part of the channel's power that devices do not know, as it has changed since they measured it."""

    @property
    def capacity(self) -> int | None:
        """No limit."""
        return None

    @property
    def disturbed(self) -> bool:
        """False: signals add up, and none takes longer for that."""
        return False

    @property
    def only_sums(self) -> bool:
        """Always true."""
        return True

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """SNR of each leg alone on the whole band; nothing is carried at rates, so that it is never needed."""
        return Allocation(inputs.own / inputs.noise[inputs.active.receiver], 1.0, inputs.own)

    def burst_s(self, entries: int, bandwidth_hz: float) -> float:
        """Duration in s of a burst of so many entries: whole slots."""
        symbols = self.symbols_per_slot or max(1, int(bandwidth_hz * self.slot_s * (1 + 1e-12)))
        return n_slots(entries, symbols) * self.slot_s

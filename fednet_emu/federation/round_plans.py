"""Planned rounds: the planner is told what the server knows, and its grants go to links and processors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import final

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.federation.links import Links
from fednet_emu.federation.processors import Processors
from fednet_emu.network.access import Planned
from fednet_emu.network.medium.transfer import Grant
from fednet_emu.network.network import Network
from fednet_emu.network.planners import Grants, Planner, Round
from fednet_emu.radio.ergodic import ErgodicRate
from fednet_emu.radio.rate import Shannon
from fednet_emu.records.ledger import SERVER, Ledger
from fednet_emu.units import db_to_linear


@final
class RoundPlans:
    """Plans rounds where the uplink's access is `planned`, and does nothing elsewhere.

    Args:
        network: the links, at their mean SNRs.
        processors: the clocks.
        links: what sends.
        ledger: records; a plan is in the series `plan`.
    """

    def __init__(self, network: Network, processors: Processors, links: Links, ledger: Ledger) -> None:
        self._network, self._processors, self._links, self._ledger = network, processors, links, ledger
        access, rules = network.uplink.rules.band.access, network.uplink.rules
        self._planner: Planner | None = access.planner if isinstance(access, Planned) and rules.rates is None else None
        law = rules.band.law
        law = law.law if isinstance(law, ErgodicRate) else law
        self._told = False
        self._law = law if isinstance(law, Shannon) else Shannon()

    @property
    def active(self) -> bool:
        """Whether rounds are planned."""
        return self._planner is not None

    def clear(self) -> None:
        """Forget what was granted."""
        self._links.grants.clear()
        self._processors.granted.clear()

    def plan(
        self, devices: Sequence[int], flop: Array, n_samples: IntArray, down_bit: int, up_bit: int, t: int
    ) -> list[int]:
        """Grant parts of the band, powers and clocks for a round, and return the devices that take part in it.

        Args:
            devices: who has been chosen, at least one.
            flop: nominal work [N] of every device of the federation.
            n_samples: their samples [N].
            down_bit: size of what each receives, without headers.
            up_bit: size of what each uploads, without headers.
            t: the round, from 0.
        """
        self.clear()
        planner, overhead = self._planner, self._network.settings.overhead
        if planner is None:
            return list(devices)
        ready_s = self._ready_s(devices, overhead.wire_bit(down_bit))
        cells: dict[int, list[int]] = {}
        for place, device in enumerate(devices):
            cells.setdefault(self._network.uplink.rules.links.radios(device, SERVER)[1], []).append(place)
        kept = []
        for places in cells.values():
            numbers = np.array([devices[place] for place in places])
            round_ = self._round(numbers, ready_s[places], flop[numbers], n_samples[numbers], overhead.wire_bit(up_bit))
            kept += self._granted(planner, numbers, round_, t)
        if not kept and not self._told:
            self._told = True
            kind = getattr(planner, "kind", type(planner).__name__)
            text = f"lets none of the {len(devices)} devices of round {t + 1} upload; loosen its limits"
            warnings.warn(f"network.uplink.access: the planner {kind} {text}", stacklevel=2)
        return sorted(kept)

    def _granted(self, planner: Planner, numbers: IntArray, round_: Round, t: int) -> list[int]:
        """Plan for the devices of a cell that have links; the others take part without a grant."""
        able = (round_.gamma > 0) & np.isfinite(round_.ready_s)
        kept: list[int] = numbers[~able].tolist()
        for device in kept:
            self._links.grants[device] = Grant(_CRUMB)
        if not able.any():
            return kept
        grants = planner.plan(round_.only(able))
        for place, device in enumerate(numbers[able].tolist()):
            if grants.asked[place]:
                kept.append(device)
                self._grant(device, place, grants, t)
        return kept

    def _grant(self, device: int, place: int, grants: Grants, t: int) -> None:
        share, power_part, clock_part, ends_s, _, noise, error = (float(values[place]) for values in grants)
        self._links.grants[device] = Grant(share, power_part, noise, error)
        self._processors.granted[device] = clock_part
        what = {"share": share, "power_part": power_part, "clock_part": clock_part, "ends_s": ends_s, "error": error}
        self._ledger.record("plan", round=t + 1, device=device, **what)

    def _ready_s(self, devices: Sequence[int], down_bit: int) -> Array:
        """Expected times [n] at which devices have received the model, from the start of the round."""
        rates_bps = self._network.expected_bps(np.array(devices), down=True)
        with np.errstate(divide="ignore"):
            air_s = down_bit / rates_bps if down_bit else np.zeros(len(devices))
        finite_s = air_s[np.isfinite(air_s)]
        if self._network.downlink.rules.multicast and len(finite_s):
            return np.where(np.isfinite(air_s), finite_s.max(), air_s)
        return np.asarray(air_s)

    def _round(self, numbers: IntArray, ready_s: Array, flop: Array, n_samples: IntArray, up_bit: int) -> Round:
        rules, processors = self._network.uplink.rules, self._processors
        radio = rules.radio
        assert radio is not None, "an uplink knows the radio of its senders"
        assert self._planner is not None, "only planned rounds come here"
        devices = numbers.tolist()
        links, full_w = rules.links, radio.tx_power_w
        powers_w = [links.power_w(device) for device in devices]
        costs = [processors.nominal(device, work) for device, work in zip(devices, flop.tolist(), strict=True)]
        compute_s, compute_j, least_clock = np.array(costs).T
        return Round(
            ready_s=ready_s,
            compute_s=compute_s,
            compute_j=compute_j,
            least_clock=least_clock,
            size_bit=up_bit,
            snr=np.array([links.snr(device, SERVER) for device in devices]) / db_to_linear(self._planner.margin_db),
            power_w=np.array([full_w if power_w is None else power_w for power_w in powers_w]),
            amplifier_efficiency=radio.amplifier_efficiency,
            circuit_w=(radio.circuit_w or 0.0) if rules.circuit_w is None else rules.circuit_w.of(numbers),
            weight=n_samples.astype(float),
            bandwidth_hz=rules.band.bandwidth_hz,
            law=self._law,
        )


_CRUMB = 1e-9
"""Part of the band of a device that no plan can help, since it has no link."""

"""Planned rounds, for which a planner at the server sets band shares, transmit powers and clock frequencies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.processors import Processors
from fednet_emu.federation.links import Links
from fednet_emu.federation.outside import Question
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Grant
from fednet_emu.network.network import Network
from fednet_emu.network.planning import Planner
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.planning.base import Round
from fednet_emu.radio.rates.ergodic import ErgodicRate
from fednet_emu.records.ledger import Ledger
from fednet_emu.units import db_to_linear


@final
class RoundPlans:
    """Plans rounds if the uplink's access is `planned`, and records the plans in the series `plan`.

    If `asks` is True, the caller of the run determines the grants of each cell in place of the planner.
    """

    def __init__(
        self,
        network: Network,
        processors: Processors,
        links: Links,
        ledger: Ledger,
        streams: Streams,
        *,
        asks: bool = False,
    ) -> None:
        self._network, self._processors, self._links, self._ledger = network, processors, links, ledger
        self._streams = streams
        uplink, access = network.uplink, network.uplink.settings.access
        self._planner: Planner | None = access.planner if isinstance(access, Planned) and uplink.rates is None else None
        law = uplink.band.law
        self._law = law.law if isinstance(law, ErgodicRate) else law
        self._warned, self._asks = False, asks

    @property
    def active(self) -> bool:
        return self._planner is not None

    def clear(self) -> None:
        self._links.grants.clear()
        self._processors.granted.clear()

    def plan(
        self, devices: Sequence[int], flop: Array, n_samples: IntArray, down_bit: int, up_bit: int, t: int
    ) -> Process:
        """Process that grants band shares, powers and clock frequencies; it returns the participating devices.

        The chosen `devices`, at least one, are given by index. `flop` is the nominal work [N] in FLOP and `n_samples`
        the number of samples [N] of every device of the federation. `down_bit` and `up_bit` are the sizes in bits,
        without headers, of the download and upload of each chosen device. Round `t` is counted from 0.
        """
        self.clear()
        planner, overhead = self._planner, self._network.settings.overhead
        if planner is None:
            return list(devices)
        cells: dict[int, list[int]] = {}
        for device in devices:
            cells.setdefault(self._network.serving_cell(device), []).append(device)
        kept: list[int] = []
        for own in cells.values():
            numbers = np.array(own)
            download_s = self._download_s(numbers, overhead.wire_bit(down_bit))
            round_ = self._round(numbers, download_s, flop[numbers], n_samples[numbers], overhead.wire_bit(up_bit))
            if planner.draws:
                round_ = replace(round_, rng=self._streams("plan", t, own[0]))
            kept += yield from self._granted(planner, numbers, round_, t)
        if not kept and not self._warned:
            self._warned = True
            kind = planner.kind
            text = f"lets none of the {len(devices)} devices of round {t + 1} upload; loosen its limits"
            warnings.warn(f"network.uplink.access: the planner {kind} {text}", stacklevel=2)
        return sorted(kept)

    def _granted(self, planner: Planner, numbers: IntArray, round_: Round, t: int) -> Process:
        """Process that plans one cell and returns its participating devices; `numbers` are its device indices.

        Devices without a working link receive `_LEAST_GRANT`. If a plan leaves devices out, planning is repeated
        without these devices, because they do not receive the model.
        """
        able = (round_.gamma > 0) & np.isfinite(round_.ready_s)
        for device in numbers[~able].tolist():
            self._links.grants[device] = _LEAST_GRANT
        asked = able.copy()
        while asked.any():
            now = self._after_download(round_, asked | ~able).only(asked)
            if self._asks:
                grants = yield self._processors.clock.ask(Question("grants", (numbers[asked], now)))
            else:
                grants = planner.plan(now)
            kept = grants.share > 0
            if kept.all() or planner.draws:
                for device, *grant in zip(numbers[asked].tolist(), *(part.tolist() for part in grants), strict=True):
                    if grant[0] > 0:
                        self._grant(device, Grant(*grant), t)
                asked[asked] = kept
                break
            asked[asked] = kept
        return [int(number) for number in numbers[asked | ~able]]

    def _grant(self, device: int, grant: Grant[float], t: int) -> None:
        self._links.grants[device] = grant
        self._processors.granted[device] = grant.clock_part
        what = grant._asdict()
        del what["noise"]
        self._ledger.record("plan", round=t + 1, device=device, **what)

    def _download_s(self, numbers: IntArray, down_bit: int) -> Array:
        if not down_bit:
            return np.zeros(len(numbers))
        with np.errstate(divide="ignore"):
            return np.asarray(down_bit / self._network.expected_bps(numbers, down=True))

    def _after_download(self, round_: Round, there: Mask) -> Round:
        """Return the round if only the devices `there` download; a broadcast lasts as long as their slowest link."""
        download_s = round_.ready_s
        if not self._network.downlink.settings.broadcasts:
            return round_
        reached = np.isfinite(download_s)
        return replace(round_, ready_s=np.where(reached, download_s.max(initial=0.0, where=reached & there), np.inf))

    def _round(self, numbers: IntArray, download_s: Array, flop: Array, n_samples: IntArray, up_bit: int) -> Round:
        uplink, processors = self._network.uplink, self._processors
        radio, sending = uplink.radios.sender, uplink.radios.sending
        assert self._planner is not None, "only planned rounds come here"
        assert sending is not None, "devices send on an uplink"
        devices = numbers.tolist()
        links, full_w = uplink.links.now(), radio.tx_power_w
        powers_w = [links.power_w(device) for device in devices]
        costs = [processors.nominal(device, work) for device, work in zip(devices, flop.tolist(), strict=True)]
        compute_s, compute_j, min_clock = np.array(costs).T
        return Round(
            ready_s=download_s,
            compute_s=compute_s,
            compute_j=compute_j,
            min_clock=min_clock,
            size_bit=up_bit,
            snr=np.array([links.snr(device, links.station_of(device)) for device in devices])
            / db_to_linear(self._planner.margin_db),
            power_w=np.array([full_w if power_w is None else power_w for power_w in powers_w]),
            amplifier_efficiency=np.minimum(sending.efficiency.of(numbers), _CONSTANT),
            circuit_w=sending.circuit_w.of(numbers),
            weight=n_samples.astype(float),
            bandwidth_hz=uplink.band.bandwidth_hz,
            law=self._law,
            bits_j=uplink.radios.tx_j_per_bit * up_bit,
        )


_CONSTANT = 1e9
"""Amplifier efficiency that plans assume for devices whose power while sending is independent of the radiated power."""
_LEAST_GRANT = Grant(1e-9, 1.0, 1.0, math.nan, 1.0, 0.0)
"""Grant of a negligible share of the band, for a device that is left out of the plan because its link rate is 0."""

"""What ASPIRE records of its own: iterations and their bits, reports, and the stationarity gap."""

from __future__ import annotations

from collections.abc import Iterable

from fednet_emu.algorithms.robust.aspire.worker import Wire
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Device, Federation


class Log:
    """Series `aspire` (a row per iteration), `activations` (a row per report) and `stationarity`."""

    def __init__(self, fed: Federation, wire: Wire) -> None:
        self._fed, self._wire = fed, wire
        self._paper_bit = self._actual_bit = 0

    def iteration(self, t: int, active: int, heard: int, planes: int, refreshed: int, displaced: int) -> None:
        """Record iteration t, from 0, and its bits; totals count from the start.

        The master waited for S = `active` reports and has received `heard`; it has `planes` planes, sent to N =
        `refreshed` workers in this iteration, and has dropped `displaced` planes in use so far.
        """
        size = self._fed.task.model.size
        paper_bit, actual_bit = iteration_bit(self._wire, heard, size, planes, refreshed)
        self._paper_bit += paper_bit
        self._actual_bit += actual_bit
        self._fed.ledger.record(
            "aspire",
            step=t + 1,
            simulated_s=self._fed.now_s,
            active=active,
            arrived=heard,
            planes=planes,
            displaced=displaced,
            bits_paper=self._paper_bit,
            bits_actual=self._actual_bit,
        )

    def reports(self, t: int, reports: Iterable[tuple[Device, float, int]]) -> None:
        """Record the reports: (device, time of arrival, iteration of the latest reply to it)."""
        for device, arrived_s, told in reports:
            self._fed.ledger.record(
                "activations", step=t + 1, device=device.index, arrived_s=arrived_s, staleness=t - told
            )

    def gap(self, t: int, squared: float) -> None:
        """Record the squared stationarity gap after iteration t."""
        self._fed.ledger.record("stationarity", step=t + 1, simulated_s=self._fed.now_s, squared_gap=squared)


def iteration_bit(wire: Wire, heard: int, n_parameters: int, n_planes: int, refreshed: int) -> tuple[int, int]:
    """Bits of an iteration: by the paper's formula, and as unicast messages without losses.

    S = `heard` uploads and replies, P parameters, L planes, N = `refreshed` workers that receive the planes. The paper
    counts S (2 P + 1 + L) scalars (its Section VI) and N^2 L for a refresh, without the loss that each upload carries
    and the multipliers in a refresh.
    """
    paper = heard * (2 * n_parameters + 1 + n_planes) + refreshed**2 * n_planes
    extra = heard + refreshed * n_planes
    actual = paper + extra if wire == "paper" else heard * (2 * n_parameters + 2) + refreshed
    return FLOAT_BIT * paper, FLOAT_BIT * actual

"""The conservation laws: checks on the ledger that must hold for every run and every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import IntArray, Mask
from fednet_emu.records.charge import charge_problem
from fednet_emu.records.ledger import CODE, KINDS, NEVER_NS, Ledger

if TYPE_CHECKING:
    import pandas as pd

DELIVERED = CODE[""]
FOREVER = np.iinfo(np.int64).max


def verify(ledger: Ledger, exclusive: frozenset[str], half_duplex: frozenset[str] = frozenset()) -> dict[str, str]:
    """Check every law; the result maps its name to an empty text if it holds, else to the violation.

    Args:
        ledger: the closed ledger of a run.
        exclusive: kinds of links whose access scheme lets one transmission at a time on the air.
        half_duplex: kinds of links whose access scheme lets no device take part in two transmissions at a time.
    """
    laws: dict[str, Callable[[], str]] = {
        "bits offered = delivered + lost": lambda: _offered(ledger),
        "bits on the air = payload": lambda: _on_air(ledger),
        "a broadcast is the sum of its receptions": lambda: _receptions(ledger),
        "airtime never overlaps in turns": lambda: _turns(ledger, exclusive),
        "nobody receives while it sends": lambda: _half_duplex(ledger, half_duplex),
        "requested <= started <= ended": lambda: _order(ledger),
        "records are written as time goes": lambda: _monotone(ledger),
        "the backhaul delivers or loses": lambda: _backhaul(ledger),
        "one computation at a time": lambda: _one_at_a_time(ledger),
        "nothing is used before it is there": lambda: _used_before_there(ledger),
        "energy is the sum of its parts": lambda: _energy(ledger),
        "charge is conserved": lambda: charge_problem(ledger),
        "staleness >= 0": lambda: _staleness(ledger),
    }
    return {law: check() for law, check in laws.items()}


def _rows(bad: Mask, name: str) -> str:
    """Name the first rows that break a law."""
    rows = np.flatnonzero(bad)
    return f"{len(rows)} of {len(bad)} {name}, first in row {rows[0]}" if len(rows) else ""


def _offered(ledger: Ledger) -> str:
    column = ledger.transfers.column
    size_bit = column("size_bit") * column("receivers")
    single = column("receivers") == 1
    due_bit = np.where(column("lost") == DELIVERED, size_bit, 0)
    wrong = (column("delivered_bit") > size_bit) | (single & (column("delivered_bit") != due_bit))
    if wrong.any():
        return _rows(wrong, "transfers deliver more or less than they carry")
    for kind, offered_bit in enumerate(ledger.offered_bit):
        recorded_bit = int(size_bit[column("kind") == kind].sum())
        if recorded_bit != offered_bit:
            return f"{KINDS[kind]}: {offered_bit} bit were offered, {recorded_bit} bit are accounted for"
    return ""


def _on_air(ledger: Ledger) -> str:
    column = ledger.transfers.column
    size_bit, air_bit = column("size_bit"), column("air_bit")
    tolerance_bit = 1e-6 * size_bit
    whole = column("delivered_bit") > 0
    return _rows((air_bit > size_bit + tolerance_bit) | (whole & (air_bit < size_bit - tolerance_bit)), "transfers")


def _receptions(ledger: Ledger) -> str:
    column = ledger.transfers.column
    several = column("receivers") > 1
    transfer, lost = ledger.receptions.column("transfer"), ledger.receptions.column("lost")
    stray = (transfer < 0) | (transfer >= len(several))
    if stray.any():
        return _rows(stray, "receptions are of no transfer")
    received = np.bincount(transfer, minlength=len(several))
    arrived = np.bincount(transfer[lost == DELIVERED], minlength=len(several))
    wrong = (received != column("receivers")) | (arrived * column("size_bit") != column("delivered_bit"))
    alone = ~several & (received > 0)
    return _rows((several & wrong) | alone, "transfers differ from their receptions")


def _turns(ledger: Ledger, exclusive: frozenset[str]) -> str:
    column = ledger.transfers.column
    for code, kind in enumerate(KINDS):
        mine = (column("kind") == code) & (column("started_ns") != NEVER_NS)
        overlap = _overlaps(column("kind"), column("started_ns"), column("ended_ns"), mine)
        if kind in exclusive and overlap.any():
            return _rows(overlap, f"transfers start before the {kind} before has ended")
    return ""


def _half_duplex(ledger: Ledger, kinds: frozenset[str]) -> str:
    """Check that the airtimes of a device, as sender or receiver, delivered or lost, do not overlap."""
    column = ledger.transfers.column
    kind, started_ns, ended_ns = column("kind"), column("started_ns"), column("ended_ns")
    transfer = ledger.receptions.column("transfer")
    row = np.concatenate((np.arange(len(kind)), np.arange(len(kind)), transfer))
    owner = np.concatenate((column("sender"), column("receiver"), ledger.receptions.column("receiver")))
    for name in sorted(kinds):
        mine = (kind[row] == KINDS.index(name)) & (started_ns[row] != NEVER_NS) & (owner >= 0)
        overlap = _overlaps(owner, started_ns[row], ended_ns[row], mine)
        if overlap.any():
            return _rows(overlap, f"airtimes overlap on the {name}")
    return ""


def _overlaps(owner: NDArray[Any], started_ns: IntArray, ended_ns: IntArray, among: Mask) -> Mask:
    """Mask of rows that start before an earlier row of the same owner has ended."""
    rows = np.flatnonzero(among)
    rows = rows[np.lexsort((ended_ns[rows], started_ns[rows], owner[rows]))]
    early = (owner[rows[1:]] == owner[rows[:-1]]) & (started_ns[rows[1:]] < ended_ns[rows[:-1]])
    overlap = np.zeros(len(among), np.bool_)
    overlap[rows[1:]] = early
    return overlap


def _order(ledger: Ledger) -> str:
    column = ledger.transfers.column
    requested_ns, started_ns, ended_ns = column("requested_ns"), column("started_ns"), column("ended_ns")
    on_air = started_ns != NEVER_NS
    wrong = (requested_ns > ended_ns) | (on_air & ((requested_ns > started_ns) | (started_ns > ended_ns)))
    computes = ledger.computes.column
    return _rows(wrong, "transfers") or _rows(computes("started_ns") > computes("ended_ns"), "computations")


def _monotone(ledger: Ledger) -> str:
    written_ns = {
        "transfers": ledger.transfers.column("ended_ns"),
        "computations": ledger.computes.column("ended_ns"),
        "rounds": ledger.rounds.column("ended_ns"),
        "evaluations": ledger.evaluations.column("simulated_ns"),
    }
    for name, times_ns in written_ns.items():
        back = np.diff(times_ns, prepend=times_ns[:1]) < 0
        if back.any():
            return _rows(back, f"{name} go back in time")
    return ""


def _backhaul(ledger: Ledger) -> str:
    """Check that each message arrives whole or not at all, in order of time, and that their bits add up."""
    column = ledger.backhaul.column
    size_bit, sent_bit, ended_ns = column("size_bit"), column("sent_bit"), column("ended_ns")
    arrived, started_ns = column("lost") == DELIVERED, column("started_ns")
    part = (column("delivered_bit") != np.where(arrived, size_bit, 0)) | (sent_bit > size_bit)
    unsent = (arrived & (sent_bit < size_bit)) | ((started_ns == NEVER_NS) & (sent_bit > 0))
    early = (started_ns != NEVER_NS) & ((column("requested_ns") > started_ns) | (started_ns > ended_ns))
    back = np.diff(ended_ns, prepend=ended_ns[:1]) < 0
    wrong = _rows(part | unsent | early | back, "messages")
    if not wrong and int(sent_bit.sum()) != ledger.backhaul_bit:
        return f"{ledger.backhaul_bit} bit were sent, {int(sent_bit.sum())} bit are accounted for"
    return wrong


def _one_at_a_time(ledger: Ledger) -> str:
    column = ledger.computes.column
    began = column("started_ns") != NEVER_NS
    overlap = _overlaps(column("device"), column("started_ns"), column("ended_ns"), began)
    return _rows(overlap, "computations start before the device's one before has ended")


def _arrivals(ledger: Ledger) -> pd.DataFrame:
    """First arrival of each payload at each device or server it was sent to; `FOREVER` if it never arrived.

    Columns receiver, payload, arrived_ns.
    """
    import pandas as pd

    names = ("receiver", "payload", "ended_ns", "receivers", "lost")
    transfers = pd.DataFrame({name: ledger.transfers.column(name) for name in names})
    receptions = pd.DataFrame({name: ledger.receptions.column(name) for name in ("transfer", "receiver", "lost")})
    several = receptions.join(transfers[["payload", "ended_ns"]], on="transfer")
    columns = ["receiver", "payload", "ended_ns", "lost"]
    sent = pd.concat([transfers[transfers["receivers"] == 1][columns], several[columns]])
    sent = sent[sent["payload"] >= 0]
    sent["arrived_ns"] = sent["ended_ns"].where(sent["lost"] == DELIVERED, FOREVER)
    return sent.groupby(["receiver", "payload"])["arrived_ns"].min().reset_index()


def _used_before_there(ledger: Ledger) -> str:
    """Check that a payload is used at its maker only after it was made, and elsewhere, if sent, only after arrival."""
    import pandas as pd

    columns = ("device", "started_ns", "ended_ns", "input", "result")
    computes = pd.DataFrame({name: ledger.computes.column(name) for name in columns})
    sent = pd.DataFrame({name: ledger.transfers.column(name) for name in ("sender", "payload", "requested_ns")})
    made = computes[computes["result"] >= 0].groupby("result")[["device", "ended_ns"]].first()
    arrivals = _arrivals(ledger)

    uses = computes.rename(columns={"input": "payload", "started_ns": "used_ns"})[["device", "payload", "used_ns"]]
    early = _too_early(uses, made, arrivals, ledger.given, must_arrive=False)
    if early.any():
        return _rows(early, "computations start before their input has come")
    sends = sent.rename(columns={"sender": "device", "requested_ns": "used_ns"})[["device", "payload", "used_ns"]]
    return _rows(
        _too_early(sends, made, arrivals, ledger.given, must_arrive=True),
        "transfers are asked for before their payload is there",
    )


def _too_early(
    uses: pd.DataFrame, made: pd.DataFrame, arrivals: pd.DataFrame, given: set[int], *, must_arrive: bool
) -> Mask:
    """Mask of uses (device, payload, used_ns) that come before the payload is available to the device.

    At its maker, a payload is available from the end of the computation. Elsewhere it is available from its first
    arrival; a use where it was never sent is too early only if `must_arrive` and another device's computation made it.
    """
    found = uses.merge(arrivals, how="left", left_on=["device", "payload"], right_on=["receiver", "payload"])
    origin = made.reindex(found["payload"])
    maker, ended_ns = origin["device"].to_numpy(), origin["ended_ns"].to_numpy()
    used_ns, arrived_ns = found["used_ns"].to_numpy(), found["arrived_ns"].to_numpy()
    device, free = found["device"].to_numpy(), found["payload"].isin(given | {-1}).to_numpy()
    at_maker = maker == device
    elsewhere = ~at_maker & (used_ns < arrived_ns)
    unsent = ~at_maker & np.isnan(arrived_ns) & ~np.isnan(maker) & must_arrive
    too_early: Mask = ~free & ((at_maker & (used_ns < ended_ns)) | elsewhere | unsent)
    return too_early


def _energy(ledger: Ledger) -> str:
    radio, computes = ledger.transfers.column, ledger.computes.column
    parts_j = float(radio("energy_j").sum() + radio("receive_j").sum() + computes("energy_j").sum())
    parts_j += float(ledger.backhaul.column("energy_j").sum())
    if not np.isclose(parts_j, ledger.energy_j, rtol=1e-9, atol=1e-12):
        return f"the parts are {parts_j:.9g} J, the total is {ledger.energy_j:.9g} J"
    return ""


def _staleness(ledger: Ledger) -> str:
    broken = (name for name, values in _staleness_series(ledger) if min(values) < 0)
    return ", ".join(f"negative in {name}" for name in broken)


def _staleness_series(ledger: Ledger) -> Iterator[tuple[str, list[Any]]]:
    for name, rows in ledger.series.items():
        values = [row["staleness"] for row in rows if "staleness" in row]
        if values:
            yield name, values

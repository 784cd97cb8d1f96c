"""The transfers that were lost last, as a hint in deadlock messages."""

from __future__ import annotations

from fednet_emu.records.ledger import Ledger, device_label

SHOWN = 5


def recent_losses(ledger: Ledger) -> str:
    """The clause `; last lost: ...` with the latest loss of each sender and receiver, or nothing without losses."""
    import pandas as pd

    frames = ledger.frames()
    transfers = frames["transfers"]
    several = frames["receptions"].join(transfers[["kind", "sender", "ended_s"]], on="transfer")
    columns = ["kind", "sender", "receiver", "ended_s", "lost"]
    ends = pd.concat([transfers.loc[transfers["receivers"] == 1, columns], several[columns]])
    lost = ends[ends["lost"] != ""].sort_values("ended_s", kind="stable").groupby(["sender", "receiver"]).tail(1)
    rows = lost.tail(SHOWN)[columns].to_dict("records")
    told = (
        f"{row['kind']} {device_label(row['sender'])} to {device_label(row['receiver'])} "
        f"at t={row['ended_s']:.6g} s ({row['lost']})"
        for row in rows
    )
    return f"; last lost: {', '.join(told)}" if rows else ""

"""Claims about the hint that names the transfers that were lost last."""

from fednet_emu.records.ledger import Ledger
from fednet_emu.records.summaries import recent_losses


def test_losses_are_told_if_there_are_any(rows, make_ledger):
    """The last loss of each link, with what it was and when; without losses nothing."""
    told = recent_losses(make_ledger(rows))

    assert told.startswith("; last lost: ")
    assert "uplink dev-" in told
    assert "(deadline)" in told
    assert recent_losses(Ledger()) == ""


def test_what_arrived_is_no_loss(rows, make_ledger):
    """Only transfers that have a reason are told, each in parentheses, and none is empty."""
    assert "()" not in recent_losses(make_ledger(rows))

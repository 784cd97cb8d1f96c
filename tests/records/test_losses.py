"""Losses by reason: counted for each receiver, and told wherever a run is summed up."""

import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.cli.app import app
from fednet_emu.draw.page.run import run_document
from fednet_emu.records.ledger import SEVERAL, Ledger
from fednet_emu.records.reasons import CODE, MEANINGS, REASONS
from fednet_emu.records.summaries import losses_in_words, messages
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
SLOW = {"network.uplink.timeout_s": 1e-4}
"""Every upload takes 320 us, so that all twelve time out; the three broadcasts to four devices arrive."""
TOLD = "of 24 messages 12 were lost: 12 timed out"


def transfer(receiver, receivers, lost):
    """A row of the ledger."""
    return (1, -1, receiver, receivers, 8, 0, 0, 0, 1, 8.0, 8, CODE[lost], 0.0, 0.0, 0, 1.0)


def test_a_broadcast_is_a_message_for_each_receiver():
    """One to three, two of which are out of reach, and three by themselves."""
    ledger = Ledger()
    ledger.transfers.append(transfer(SEVERAL, 3, ""))
    for receiver, lost in enumerate(("", "unreachable", "unreachable")):
        ledger.receptions.append((0, receiver, CODE[lost], 0.0, 1.0))
    for lost in ("", "timeout", "unreachable"):
        ledger.transfers.append(transfer(0, 1, lost))

    assert messages(ledger) == {"messages": 6, "losses": {"unreachable": 3, "timeout": 1}}
    assert messages(Ledger()) == {"messages": 0, "losses": {}}


def test_every_reason_has_words():
    """Numbers have their separators, one loss its singular; no losses, or a summary without them, say nothing."""
    assert list(MEANINGS) == REASONS
    assert all(reason.meaning and reason.in_words for reason in MEANINGS.values())
    assert losses_in_words({"messages": 1010, "losses": {"timeout": 2}}) == (
        "of 1,010 messages 2 were lost: 2 timed out"
    )
    both = losses_in_words({"messages": 3000, "losses": {"unreachable": 1200, "end": 1}})
    assert both == "of 3,000 messages 1,201 were lost: 1,200 out of reach, 1 cut off by the end of the run"
    assert losses_in_words({"messages": 3, "losses": {"left": 1}}).startswith("of 3 messages 1 was lost")
    assert losses_in_words({"messages": 3, "losses": {}}) == losses_in_words({}) == ""


def test_they_are_told_in_summary_table_explanation_and_report():
    """By the run itself, its printed rows, the explanation, and the second sentence of its page."""
    run = fe.run(MAPPING, settings=SLOW)

    assert (run.summary["messages"], run.summary["losses"]) == (24, {"timeout": 12})
    assert ("losses", TOLD) in summary_rows(run.summary)
    assert f"  {TOLD}" in run.explain(replay=False).lines()
    assert run_document(run, "")["words"][1] == f"O{TOLD[1:]}."


def test_a_run_without_losses_says_nothing():
    """No row, no line, no sentence."""
    run = fe.run(MAPPING)

    assert run.summary["losses"] == {}
    assert "losses" not in dict(summary_rows(run.summary))
    assert not any("lost" in line for line in run.explain(replay=False).lines())


@pytest.mark.parametrize("command", ["run", "explain"])
def test_the_commands_print_them(command, tmp_path):
    """`run` in its table, `explain` of the folder in a line; summary.json holds them."""
    arguments = ["run", "quickstart", "--timing-only", "--no-plots", f"--out={tmp_path / 'run'}"]
    arguments += ["--set=stop.rounds=1", "--set=network.uplink.timeout_s=1e-4"]
    result = CliRunner().invoke(app, arguments)
    if command == "explain":
        result = CliRunner().invoke(app, ["explain", "--no-replay", str(tmp_path / "run")])

    assert "of 20 messages 10 were lost: 10 timed out" in result.stdout
    assert '"timeout": 10' in (tmp_path / "run" / "summary.json").read_text()

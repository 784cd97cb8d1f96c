"""A new access scheme, a new fault and a new column are one file and one line each: they are made here, and used."""

import importlib.util
import sys
from pathlib import Path

import pytest
import record_tables

import fednet_emu as fe
from fednet_emu.devices import processors
from fednet_emu.draw.page.run import run_document
from fednet_emu.draw.trace.names import fixed_names
from fednet_emu.records import ledger, rows
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, run_small

MAPPING = from_text(SMALL, "small").data
UPLOAD_S = 320e-6


@pytest.mark.usefixtures("installed")
def test_an_access_scheme_is_a_file_and_an_entry_point():
    """Four uploads of 320 us take turns, each after a poll of 100 us."""
    sent = run_small("network.uplink.access={kind: polling, poll_s: 1e-4}", "stop.rounds=1").ledger.frames()[
        "transfers"
    ]
    uploads = sent[sent["kind"] == "uplink"].sort_values("ended_s")

    assert (uploads["ended_s"] - uploads["started_s"]).tolist() == pytest.approx([UPLOAD_S + 1e-4] * 4)
    assert uploads["ended_s"].diff().dropna().tolist() == pytest.approx([UPLOAD_S + 1e-4] * 3)


@pytest.mark.usefixtures("installed")
def test_a_fault_is_a_file_and_an_entry_point():
    """The model is there after 320 us and trained after 1.04 ms; of uploads in turns the second meets the storm."""
    storm = {"kind": "storm", "from_s": 1.5e-3, "to_s": 2.1e-3}
    run = fe.run(MAPPING, settings={"network.uplink.loss": storm, "stop.rounds": 1})
    sent = run.table("transfers")
    uploads = sent[sent["kind"] == "uplink"]

    assert uploads["lost"].astype(str).tolist() == ["", "storm", "storm", "storm"]
    assert uploads["air_bit"].tolist() == pytest.approx([320, 140, 0, 0])
    assert run.summary["losses"] == {"storm": 3}
    assert "3 lost by storm" in " ".join(run.explain(replay=False).lines())
    assert "storm" in run_document(run, "")["reasons"]
    assert "uplink, lost: storm" in dict(fixed_names()).values()


def test_a_column_is_a_line_of_its_row_and_one_of_its_writer(tmp_path, monkeypatch):
    """With its meaning below it: the table, the event digest and the reference have it, and nothing else changes."""
    source = Path(rows.__file__).read_text(encoding="utf-8")
    line = '    clock_part: Measure\n    """share of the full clock"""\n'
    wider = tmp_path / "wider_rows.py"
    wider.write_text(source.replace("    input: Value\n", f"{line}    input: Value\n"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("wider_rows", wider)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "wider_rows", module)
    spec.loader.exec_module(module)
    digest = run_small().ledger.event_digest()

    def written(device, started_ns, ended_ns, flop, energy_j, **more):
        return module.ComputeRow(device, started_ns, ended_ns, flop, energy_j, clock_part=1.0, **more)

    monkeypatch.setattr(ledger, "ComputeRow", module.ComputeRow)
    monkeypatch.setattr(processors, "ComputeRow", written)
    monkeypatch.setitem(record_tables.ROWS, "computes", module.ComputeRow)
    played = run_small().ledger

    computes = played.frames()["computes"]
    assert list(computes)[4:6] == ["energy_j", "clock_part"]
    assert set(computes["clock_part"]) == {1.0}
    assert played.event_digest() == digest
    assert "| `clock_part` | number |  |  | share of the full clock |" in record_tables.page()

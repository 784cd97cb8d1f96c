"""An access scheme, an access delay, a transport, a fault, a column: one file and one line each."""

import json
import shutil
from pathlib import Path

import pytest
import record_tables

import fednet_emu as fe
from fednet_emu.draw.page.run import run_document
from fednet_emu.draw.trace.names import fixed_names
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, run_small
from tests.commands import Forked

MAPPING = from_text(SMALL, "small").data
UPLOAD_S = 320e-6


def uploads(*settings):
    """The uploads of a round of the small federation with these settings, in the order of their ends."""
    sent = run_small(*settings, "stop.rounds=1").ledger.frames()["transfers"]
    return sent[sent["kind"] == "uplink"].sort_values("ended_s")


@pytest.mark.usefixtures("installed")
def test_an_access_scheme_is_a_file_and_an_entry_point():
    """Four uploads of 320 us are ready at 1.04 ms and take turns in slots of 500 us, from that at 1.5 ms on."""
    sent = uploads("network.uplink.access={kind: framed, slot_s: 5e-4}")

    assert sent["ended_s"].tolist() == pytest.approx([2e-3, 2.5e-3, 3e-3, 3.5e-3])


@pytest.mark.usefixtures("installed")
def test_an_access_delay_is_a_file_and_an_entry_point():
    """Ready at 1.04 ms, four uploads wait until 5 ms, are sent at once at 1 Mbit/s, and are decoded in 1 ms."""
    sent = uploads("network.uplink.access={kind: paged, period_s: 5e-3, decode_s: 1e-3}")

    assert sent["access_s"].tolist() == pytest.approx([5e-3 - 1.04e-3] * 4)
    assert sent["started_s"].tolist() == pytest.approx([5e-3] * 4)
    assert sent["tail_s"].tolist() == pytest.approx([1e-3] * 4)
    assert sent["ended_s"].tolist() == pytest.approx([6e-3 + UPLOAD_S] * 4)


@pytest.mark.usefixtures("installed")
def test_a_transport_is_a_file_and_an_entry_point():
    """A connection of a downlink takes two round trips of 10 ms, and serves the upload; a packet has 48 bytes more."""
    fed = run_small(
        "network.transport={kind: sctp, rtt_s: 0.01}", "network.downlink.mode=unicast", "stop.rounds=1",
        "devices.count=1", "algorithm.cohort=1",
    )  # fmt: skip
    sent = fed.ledger.frames()["transfers"]

    assert sent["setup_s"].tolist() == pytest.approx([0.02, 0.0])
    assert sent["wire_bit"].tolist() == [320 + 8 * 48] * 2


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


COLUMN = {
    "records/rows.py": ("    input: Value\n", '    clock_part: Measure\n    """share of the full clock"""\n'),
    "devices/processors.py": ("given, made, CODE[stopped]", "1.0, "),
}
"""What a contributor writes, by file: before which text, that is there once, and what."""
OF_COHORTS = "input=inputs,", "clock_part=np.ones(len(devices)), "
"""The same where the rows of a whole cohort are written."""
LOOK = """
import json, sys

for name in [name for name in sys.modules if name.partition(".")[0] == "fednet_emu"]:
    del sys.modules[name]
sys.path[:0] = sys.argv[1:]
import record_tables
from fednet_emu.testing import run_small

ledger = run_small().ledger
computes = ledger.frames()["computes"]
found = [list(computes), computes["clock_part"].tolist(), ledger.event_digest(), record_tables.page()]
print(json.dumps(found))
"""


def test_a_column_is_a_line_of_its_row_and_one_of_each_writer(tmp_path):
    """In a copy of the package, with its meaning below it: the table and the reference have it, events are the same."""
    package = Path(fe.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("channels", "profiles", "scenarios"):
        (tmp_path / folder).symlink_to(package.parent / folder)
    for file, (place, new) in COLUMN.items():
        path = tmp_path / package.name / file
        pieces = path.read_text(encoding="utf-8").split(place)
        assert len(pieces) == 2
        path.write_text((new + place).join(pieces), encoding="utf-8")
    path = tmp_path / package.name / "devices/processors.py"
    place, new = OF_COHORTS
    path.write_text(path.read_text(encoding="utf-8").replace(place, new + place), encoding="utf-8")

    looked = Forked("-c", LOOK, tmp_path, Path(record_tables.__file__).parent, cwd=tmp_path).ended()

    assert looked.returncode == 0, looked.stderr
    columns, parts, digest, page = json.loads(looked.stdout)
    assert columns[4:6] == ["energy_j", "clock_part"]
    assert parts == [1.0] * 12
    assert digest == run_small().ledger.event_digest()
    assert "| `clock_part` | number |  |  | share of the full clock |" in page

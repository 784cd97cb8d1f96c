"""A new access scheme, a new fault and a new column: one file and one line each. test_plugins.py has an algorithm."""

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

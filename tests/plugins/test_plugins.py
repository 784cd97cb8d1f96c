"""Kinds of other packages."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import record_tables
from pydantic import TypeAdapter
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.component import plugins
from fednet_emu.draw.page.run import run_document
from fednet_emu.draw.trace.names import fixed_names
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models import AnyModel, Mlp, UserModule
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, run_small
from tests.commands import Forked

SCENARIO = """
devices: {count: 4, placement: {kind: disc, radius_m: 100}, speed: {kind: fixed, flop_per_s: 1e6}}
channel: {include: ideal, path_loss: {kind: constant, mean_loss_db: 90}}
network: {uplink: {access: pairs}}
data: {kind: blobs, distance: 4}
partition: round-robin
model: tiny
algorithm: {kind: first-only, lr: 0.1}
stop: {rounds: 4}
training: {engine: serial}
"""
PATHS = """
algorithm: {kind: "fednet_extras.gossip:FirstOnly", lr: 0.1}
partition: fednet_extras.parts:RoundRobin
model: {kind: "fednet_extras.parts:Tiny", bias: false}
data: fednet_extras.parts:Blobs
"""


@pytest.fixture
def fednet(installed, tmp_path, monkeypatch):
    """Runs a command on a scenario of this text, where the packages are installed."""
    monkeypatch.chdir(tmp_path)

    def start(command, text, *arguments):
        (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, [command, "own.yaml", *arguments])

    return start


def test_six_kinds_of_six_slots_out_of_another_package_run(fednet, tmp_path):
    """A scenario made of them runs, though a broken package is installed beside, and its folder names them again."""
    done = fednet("run", SCENARIO, "--out", "out", "--no-plots")

    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert done.exit_code == 0, done.stderr
    assert summary["verified"]
    assert summary["rounds"] == 4
    assert summary["accuracy"] > 0.8
    text = (tmp_path / "out" / "scenario.yaml").read_text()
    for kind in ("first-only", "constant", "pairs", "blobs", "round-robin", "tiny"):
        assert f"kind: {kind}" in text


def test_what_is_checked_can_be_checked_again(fednet):
    """The complete scenario that `check` prints is a scenario, and prints itself."""
    once = fednet("check", SCENARIO)
    again = fednet("check", once.stdout)

    assert once.exit_code == again.exit_code == 0, once.stderr + again.stderr
    assert once.stdout == again.stdout


def test_import_paths_name_classes_in_every_slot(fednet):
    """`kind: package.module:Class` needs no entry point; the command says which modules it imports."""
    head = SCENARIO.split("channel:", maxsplit=1)[0]
    text = f"{head}channel: ideal\n{PATHS}stop: {{rounds: 2}}\n"
    done = fednet("run", text, "--out", "out", "--no-plots")

    assert done.exit_code == 0, done.stderr
    assert "imports fednet_extras.gossip for 'fednet_extras.gossip:FirstOnly'" in done.stderr
    assert "imports fednet_extras.parts for 'fednet_extras.parts:" in done.stderr


def test_a_broken_plug_in_is_named_in_one_sentence(fednet):
    """Only a scenario that names it fails, and learns which package to mend."""
    done = fednet("check", SCENARIO.replace("include: ideal,", "include: ideal, fading: broken,"))

    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == (
        "own.yaml:3  channel.fading: the plug-in 'broken' of fednet_broken 1.2 cannot be imported (ImportError: "
        "libbroken.so is missing), got fednet_broken:Broken; repair or uninstall that package"
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kind: first-only, lr: 0.1", "kind: first-only, lr: 0", "own.yaml:8  algorithm.lr: must be > 0, got 0"),
        ("lr: 0.1", "lrr: 0.1", "own.yaml:8  algorithm.lrr: no such setting; did you mean 'lr'?"),
        ("kind: first-only, lr: 0.1", "kind: first-only", "own.yaml:8  algorithm.lr: is required"),
        (
            "mean_loss_db: 90",
            "mean_loss_db: x",
            "own.yaml:3  channel.path_loss.mean_loss_db: expected a number, got 'x'",
        ),
        ("model: tiny", "model: tinny", "own.yaml:7  model: no such kind of model, got 'tinny'; did you mean 'tiny'?"),
        ("first-only", "not-one", "'not-one' is no algorithm, got <class 'json.decoder.JSONDecoder'>; "),
        ("model: tiny", "model: fednet_extras.parts:Tinny", "has no such name, got 'Tinny'; did you mean 'Tiny'?"),
        ("model: tiny", "model: nowhere.at_all:Tiny", "importing nowhere.at_all failed (ModuleNotFoundError: "),
        ("model: tiny", "model: fednet_extras.parts:Blobs", "'fednet_extras.parts:Blobs' is no model, got <class"),
        (
            "model: tiny",
            "model: fednet_emu.learning.models:Model",
            "is not complete, got a model without build; define",
        ),
    ],
)
def test_problems_of_plug_ins_read_as_all_others(fednet, old, new, problem):
    """Place, key, what is wrong and what would be right, for settings of plug-ins and for their names."""
    done = fednet("check", SCENARIO.replace(old, new))

    assert done.exit_code == 2
    assert problem in done.stderr


@pytest.mark.slow
def test_order_and_imports_do_not_matter(python):
    """Components of one module can be looked up in any order, also when the package itself came first."""
    code = """
import fednet_extras.parts, fednet_extras.gossip
from fednet_emu.learning.models import AnyModel
from fednet_emu.scenario.algorithms import AnyAlgorithm
from fednet_emu.radio.propagation.path_loss import AnyPathLoss
from pydantic import TypeAdapter
found = [
    TypeAdapter(AnyPathLoss).validate_python({"kind": "constant", "mean_loss_db": 3}),
    TypeAdapter(AnyModel).validate_python("tiny"),
    TypeAdapter(AnyAlgorithm).validate_python({"kind": "first-only", "lr": 1}),
]
print([type(its).__name__ for its in found])
"""
    done = python("-c", code)

    assert done.stdout.strip() == "['Constant', 'Tiny', 'FirstOnly']", done.stderr


@pytest.mark.usefixtures("installed")
def test_nothing_is_imported_that_a_scenario_does_not_name():
    """Kinds are listed by name; the modules of plug-ins stay unread until one is named."""
    load_scenario("quickstart")

    with pytest.raises(ScenarioError, match="did you mean 'tiny'"):
        load_scenario("quickstart", ["model=tinny"])
    assert not [name for name in sys.modules if name.startswith(("fednet_extras", "fednet_broken"))]


@pytest.mark.usefixtures("installed")
def test_entry_points_are_read_once(monkeypatch):
    """A hundred unknown keys and a kind ask the installed packages once, not a hundred times."""
    asked = []
    real = plugins.entry_points
    monkeypatch.setattr(plugins, "entry_points", lambda **group: asked.append(group) or real(**group))

    with pytest.raises(ScenarioError) as caught:
        load_scenario("quickstart", [*(f"algorithm.key{number}=1" for number in range(100)), "model=tinny"])

    assert len(caught.value.problems) == 101
    assert len(asked) == 1


@pytest.mark.usefixtures("installed")
def test_two_packages_that_offer_the_same_kind_are_both_named(monkeypatch):
    """Which of the two would be meant is not guessed."""
    points = tuple(plugins.entry_points(group=plugins.GROUP))
    rival = plugins.EntryPoint("model.tiny", "rival.nets:Tiny", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: (*points, rival))

    with pytest.raises(ScenarioError, match=r"offered by several packages, got fednet_extras 1.2 \(.*\) and .*rival"):
        load_scenario("quickstart", ["model=tiny"])


@pytest.mark.usefixtures("installed")
def test_a_plug_in_cannot_take_the_place_of_what_is_built_in(monkeypatch):
    """A kind of the table stays what it is, whatever is installed."""
    rival = plugins.EntryPoint("model.mlp", "rival.nets:Mlp", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: (rival,))

    assert TypeAdapter(AnyModel).validate_python({"kind": "mlp", "hidden": [3]}) == Mlp(hidden=(3,))


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True])
def test_the_current_folder_is_never_imported_from_by_itself(python, tmp_path, trusted):
    """`python -m` would find a module there; it is refused, until PYTHONPATH says that the folder is trusted."""
    (tmp_path / "beside.py").write_text(
        "from fednet_extras.gossip import FirstOnly\nprint('code of beside ran')\nclass Mine(FirstOnly): ...\n",
        encoding="utf-8",
    )
    (tmp_path / "own.yaml").write_text(SCENARIO.replace("kind: first-only", "kind: 'beside:Mine'"), encoding="utf-8")
    done = python("-m", "fednet_emu", "check", "own.yaml", path=[tmp_path] if trusted else [])

    assert ("code of beside ran" in done.stdout) == trusted
    if trusted:
        assert done.returncode == 0, done.stderr
        assert "kind: beside:Mine" in done.stdout
    else:
        assert done.returncode == 2
        assert "algorithm: beside is in the current folder, which is not searched for modules" in done.stderr


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("folder", ["", "."])
def test_the_guard_holds_for_shadows_and_for_networks_by_path(folder, tmp_path):
    """At a prompt the current folder comes first: what it hides is not imported from it, nor is a model's `path`."""
    (tmp_path / "nets.py").write_text("raise SystemExit('code of nets ran')\n", encoding="utf-8")
    (tmp_path / "colorsys.py").write_text("raise SystemExit('code of a shadow ran')\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, "colorsys", raising=False)

        for path in ("nets:Net", "colorsys:Net"):
            with pytest.raises(ScenarioError, match=f"model.path: {path[:-4]} is in the current folder"):
                UserModule(path=path).build((2,), 2)


def test_the_manifest_names_plug_ins_with_their_versions(fednet, tmp_path):
    """Which packages a run was made with is in its folder."""
    fednet("run", SCENARIO, "--out", "out", "--no-plots")

    plugins_told = json.loads((tmp_path / "out" / "manifest.json").read_text())["plugins"]
    assert plugins_told["fednet_extras.gossip:FirstOnly"] == "fednet_extras 1.2"
    assert len(plugins_told) == 6


def test_kinds_of_packages_are_listed_beside_the_own_ones(fednet):
    """Each with the first sentence of its class; of a package that cannot be imported it is said why."""
    told = CliRunner().invoke(app, ["kinds", "partition"]).stdout
    slots_told = CliRunner().invoke(app, ["kinds"]).stdout

    assert "  round-robin " in told
    assert "  iid " in told
    assert "cannot be imported" in slots_told


MAPPING = from_text(SMALL, "small").data
UPLOAD_S = 320e-6


def uploads(*settings):
    """The uploads of a round of the small federation with these settings, in the order of their ends."""
    sent = run_small(*settings, "stop.rounds=1").ledger.frame("transfers")
    return sent[sent["direction"] == "uplink"].sort_values("ended_s")


@pytest.mark.usefixtures("installed")
def test_an_access_scheme_is_a_file_and_an_entry_point():
    """Four uploads of 320 us are ready at 1.04 ms and take turns in slots of 500 us, from that at 1.5 ms on."""
    sent = uploads("network.uplink.access={kind: framed, slot_s: 5e-4}")

    assert sent["ended_s"].tolist() == pytest.approx([2e-3, 2.5e-3, 3e-3, 3.5e-3])


@pytest.mark.usefixtures("installed")
def test_an_access_delay_is_a_file_and_an_entry_point():
    """Ready at 1.04 ms, four uploads wait until 5 ms, are sent at once at 1 Mbit/s, and are decoded in 1 ms."""
    sent = uploads("network.uplink.access={kind: paged, period_s: 5e-3, decode_s: 1e-3}")

    assert sent["grant_delay_s"].tolist() == pytest.approx([5e-3 - 1.04e-3] * 4)
    assert sent["started_s"].tolist() == pytest.approx([5e-3] * 4)
    assert sent["reception_delay_s"].tolist() == pytest.approx([1e-3] * 4)
    assert sent["ended_s"].tolist() == pytest.approx([6e-3 + UPLOAD_S] * 4)


@pytest.mark.usefixtures("installed")
def test_a_transport_is_a_file_and_an_entry_point():
    """A connection of a downlink takes two round trips of 10 ms, and serves the upload; a packet has 48 bytes more."""
    fed = run_small(
        "network.transport={kind: sctp, rtt_s: 0.01}", "network.downlink.mode=unicast", "stop.rounds=1",
        "devices.count=1", "algorithm.cohort=1",
    )  # fmt: skip
    sent = fed.ledger.frame("transfers")

    assert sent["connection_setup_s"].tolist() == pytest.approx([0.02, 0.0])
    assert sent["wire_bit"].tolist() == [320 + 8 * 48] * 2


@pytest.mark.usefixtures("installed")
def test_a_fault_is_a_file_and_an_entry_point():
    """The model is there after 320 us and trained after 1.04 ms; of uploads in turns the second meets the storm."""
    storm = {"kind": "storm", "from_s": 1.5e-3, "to_s": 2.1e-3}
    run = fe.run(MAPPING, settings={"network.uplink.message_loss": storm, "stop.rounds": 1})
    sent = run.table("transfers")
    uploads = sent[sent["direction"] == "uplink"]

    assert uploads["loss_reason"].astype(str).tolist() == ["", "storm", "storm", "storm"]
    assert uploads["transmitted_bit"].tolist() == pytest.approx([320, 140, 0, 0])
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
computes = ledger.frame("computes")
found = [list(computes), computes["clock_part"].tolist(), ledger.event_digest(), record_tables.page()]
print(json.dumps(found))
"""


def test_a_column_is_a_line_of_its_row_and_one_of_each_writer(tmp_path):
    """In a copy of the package, with its meaning below it: the table and the reference have it, events are the same."""
    package = Path(fe.__file__).parent
    shutil.copytree(package, tmp_path / package.name)  # with what is compiled of it
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

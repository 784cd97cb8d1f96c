"""First steps, and files that are damaged or of another kind."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

import fednet_emu as fe
from fednet_emu.cli import options
from fednet_emu.cli.app import MORE, app
from fednet_emu.results.library import bibtex, references
from fednet_emu.scenario.slots import slots
from fednet_emu.testing import SMALL
from tests.commands import fednet
from tests.quick import crossed

ROOT = Path(__file__).parents[2]
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]
UNPUBLISHED = {"algorithm.idle", "algorithm.individual", "algorithm.local"}
"""Baselines of many papers, which have no source."""


def plain_yaml(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_the_list_of_commands_is_not_cut():
    """Each command has its whole first sentence."""
    told = " ".join(fednet("--help").stdout.split())

    assert "..." not in told.partition("Commands:")[2]
    assert "list those that may be the best." in told


def test_the_papers_of_reproduce_are_listed():
    """Each program of `scenarios/papers` is in the help."""
    told = " ".join(fednet("reproduce", "--help").stdout.split())

    assert [its for its in (ROOT / "scenarios/papers").glob("*.py") if its.stem.replace("_", "-") not in told] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example_and_a_page(command):
    """The example is a command line of that command, with options that it has; the page is there."""
    told = fednet(command, "--help").stdout
    example, page = MORE[command]

    assert f"\n  Example: {example}\n  More:    docs/{page}.md\n" in told
    assert "\\[" not in told
    assert example.split()[:2] == ["fednet", command]
    assert all(option in told for option in re.findall(r" (--[a-z-]+)", example))
    assert (ROOT / f"docs/{page}.md").is_file()


def test_a_new_scenario_runs(tmp_path, monkeypatch):
    """It is there under its name, and valid; a second one of that name leaves it as it is."""
    monkeypatch.chdir(tmp_path)
    made = fednet("new", "my phones")
    text = Path("my phones.yaml").read_text(encoding="utf-8")
    again = fednet("new", "my phones.yaml")

    assert made.stdout == "my phones.yaml: run it with `fednet run 'my phones.yaml'`\n"
    assert again.exit_code == 2
    assert "my phones.yaml: is already there, got the same name; choose another, or remove it" in again.stderr
    assert Path("my phones.yaml").read_text(encoding="utf-8") == text
    done = fednet("run", "my phones.yaml", "--set", "stop.rounds=2", "--no-plots", "--out", "out")
    assert done.exit_code == 0, done.stderr
    assert fednet("new", "").exit_code == fednet("new", "..").exit_code == 2


def test_what_a_new_scenario_proposes_is_valid(tmp_path):
    """Every line that is commented out can be used, and a title is text whatever its name reads."""
    path = tmp_path / "true.yaml"
    assert fednet("new", str(path)).exit_code == 0
    text = path.read_text(encoding="utf-8")
    used = re.sub(r"^  # (\w+:)", r"  \1", text, flags=re.MULTILINE)

    assert len(re.findall(r"^  # \w+:", text, re.MULTILINE)) == 2
    assert fe.check(plain_yaml(text)).title == "true"
    assert fe.check(plain_yaml(used)).devices.straggler.kind == "shifted-exponential"


def test_kinds_are_printed_with_the_keys_that_hold_them():
    """A heading with the slot and its keys, then a line for each kind; without a slot, all of them."""
    access = fednet("kinds", "network.uplink.access").stdout.splitlines()
    everything = fednet("kinds").stdout

    assert access[0] == "access (network.uplink.access, network.downlink.access, network.sidelink.access)"
    assert access[1].split(maxsplit=1) == ["tdma", fe.kinds("access")["tdma"]]
    assert len(access) == 1 + len(fe.kinds("access"))
    assert "\n".join(access) in everything
    assert "kinds: no such slot, got 'acess'; did you mean 'access'?" in fednet("kinds", "acess").stderr


def test_the_settings_of_a_kind_are_printed_with_values_units_and_defaults():
    """By slot or key and kind, or by a key without kinds; whoever asks for what there is not is given keys that are."""
    law = fednet("kinds", "path_loss.log-distance").stdout
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in law.splitlines()[1:]}

    assert list(told) == ["exponent", "reference_distance_m", "reference_loss_db"]
    assert told["exponent"].startswith("a number > 0, required. Path-loss exponent n.")
    assert told["reference_distance_m"].startswith("a number > 0, m, default 1.0. Reference distance d0")
    assert told["reference_loss_db"].startswith("a number or null, dB, default null. Loss L0")
    assert fednet("kinds", "channel.path_loss.log-distance").stdout.splitlines()[1:] == law.splitlines()[1:]
    assert (
        "  simulated_s  a number in (0, 1000000000.0] or null, s, default null. Maximum sim"
        in fednet("kinds", "stop").stdout
    )
    assert "kinds: no such kind of path_loss, got 'log'; known: free-space" in fednet("kinds", "path_loss.log").stderr


def test_every_key_that_kinds_proposes_is_one():
    """What stands in the list can be asked for, and is the last part of a key of a scenario."""
    proposed = fednet("kinds", "foo").stderr.partition("choose from ")[2].strip().split(", ")

    assert len(proposed) > 40
    for name in proposed:
        heading = fednet("kinds", name).stdout.splitlines()[0]
        assert re.search(rf"[(.]{name}[,)]", heading), heading


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("netw", ["network."]),
        ("network.uplink.acc", ["network.uplink.access."]),
        ("network.uplink.access=t", ["network.uplink.access=tdma"]),
        ("algorithm.kind=fedp", ["algorithm.kind=fedper", "algorithm.kind=fedproto", "algorithm.kind=fedprox"]),
        ("algorithm=scaf", ["algorithm=scaffold"]),
        ("algorithm.cohor", ["algorithm.cohort="]),
        ("training.tf32=", ["training.tf32=true", "training.tf32=false"]),
        ("channel.bandwidth_hz=", []),
        ("no.such.key", []),
    ],
)
def test_settings_are_completed(typed, completed):
    """A key level by level, then kinds, literals, true and false; nothing where a number is due."""
    assert options.settings(typed) == completed


def test_the_shell_is_answered(tmp_path, monkeypatch):
    """By typer's protocol: commands, names of the library and files, studies for a command that takes them, slots."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quicker.yaml").touch()
    (tmp_path / "own.txt").touch()

    def answer(*words: str) -> list[str]:
        env = {"_FEDNET_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        return fednet(**env).stdout.split()

    assert answer("fednet", "sw") == ["sweep"]
    assert answer("fednet", "run", "quicks") == ["quickstart"]
    assert answer("fednet", "run", "./") == ["./quicker.yaml"]
    assert answer("fednet", "sweep", "quickstart_a") == ["quickstart_access"]
    assert answer("fednet", "channels", "rur") == ["rural"]
    assert answer("fednet", "kinds", "acc") == ["access"]
    assert answer("fednet", "run", "quickstart", "--set", "see") == ["seed="]


def test_a_run_is_cited_by_what_it_uses(tmp_path):
    """The emulator, the method, the data and the law of its channel; what it does not use is not there."""
    changes = ["--set", "stop.rounds=1", "--set", "network.uplink.compression=qsgd"]
    assert fednet("run", "quickstart", "--no-plots", "--timing-only", "--out", str(tmp_path / "run"), *changes)
    keys = re.findall(r"^@\w+\{(\w+),$", fednet("cite", str(tmp_path / "run")).stdout, re.MULTILINE)

    assert keys[0] == "fednet_emu"
    assert {"mcmahan2017communication", "alistarh2017qsgd", "alpaydin1998optical", "3gpp38901"} <= set(keys)
    assert {"reddi2021adaptive", "karimireddy2020scaffold", "lecun1998gradient"}.isdisjoint(keys)
    assert fe.open(tmp_path / "run").cite() == fednet("cite", str(tmp_path / "run")).stdout.rstrip()


def test_the_references_name_kinds_that_exist():
    """No entry is for nothing, no key comes twice, and every algorithm has a source."""
    sources = {name for names in references().values() for name in names} - {"fednet_emu"}
    known = {f"{slot}.{kind}" for slot, place in slots().items() for kind in place.slot.table}
    keys = [re.match(r"@\w+\{([\w-]+),\n", entry)[1] for entry in references()]

    assert sources <= known
    assert len(set(keys)) == len(keys) == (ROOT / "fednet_emu/results/references.bib").read_text().count("\n@")
    assert {name for name in known if name.startswith("algorithm.")} - sources == UNPUBLISHED
    assert all(entry.count("{") == entry.count("}") for entry in references())


def test_the_emulator_is_cited_as_its_citation_file_says():
    """Title, version and year are those of CITATION.cff, and the version is that of the package."""
    told = plain_yaml((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    own = bibtex([]).replace("\\_", "_")

    assert f"title = {{{told['title']}}}" in own
    assert f"version = {{{told['version']}}}" in own
    assert f"year = {{{told['date-released'].year}}}" in own
    assert told["version"] == fe.__version__


def test_a_plug_in_brings_its_own_references():
    """The entries of its class stand after those of the package, and once."""

    class Own(fe.Algorithm):
        bibtex: ClassVar[str] = "\n@misc{own2026,\n  title = {Own},\n}\n"

        def run(self, fed):
            raise NotImplementedError

    scenario = fe.check("quickstart", settings={"algorithm": Own()})

    assert bibtex([scenario, scenario]).count("own2026") == 1
    assert "mcmahan2017" not in bibtex([scenario])


RUN_FILES = ("manifest.json", "summary.json", "scenario.yaml", "evaluations.parquet", "rounds.parquet")
STUDY_FILES = ("study.json", "runs.parquet", "study.parquet")


def without(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def other(path: Path) -> None:
    path.write_text(json.dumps([1, 2, 3]))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


DAMAGES = [without, emptied, cut, flipped, other, a_folder, nested]
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, cells_here: None) -> Path:
    room = tmp_path_factory.mktemp("sound")
    (room / "small.yaml").write_text(SMALL.replace("rounds: 3", "rounds: 2"), encoding="utf-8")
    (room / "study.yaml").write_text("base: small\ngrid: {algorithm.lr: [0.1, 0.2]}\nseeds: 2\n", encoding="utf-8")
    assert fednet("run", room / "small.yaml", "--out", room / "run", "--no-plots").exit_code == 0
    assert fednet("sweep", room / "study.yaml", "--out", room / "study", "--quiet").exit_code == 0
    return room


def assert_told(result: Result, path: Path, damage: Damage) -> None:
    """One line names the file, its problem and a remedy; a bit that changes nothing that is used may do no harm."""
    assert "Traceback" not in result.output
    if result.exit_code:
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith(str(path)) or (damage is flipped and path.name in ("manifest.json", "study.json"))
        assert "again" in line
        assert result.exit_code == 2
    else:
        assert path.name == "manifest.json"
        assert damage in (without, flipped, a_folder, other)


@pytest.mark.parametrize(("damage", "name"), crossed(DAMAGES, RUN_FILES))
def test_a_run_with_a_damaged_file(name: str, damage: Damage, sound: Path, tmp_path: Path) -> None:
    """Nothing is drawn or compared from a file that is not as it was written."""
    shutil.copytree(sound / "run", tmp_path / "run")
    damage(tmp_path / "run" / name)
    results = [fednet("plot", tmp_path / "run", "--out", tmp_path / "figures")]
    if name != "rounds.parquet":
        results.append(fednet("compare", tmp_path / "run", sound / "run"))

    for result in results:
        assert_told(result, tmp_path / "run" / name, damage)


@pytest.mark.parametrize(("damage", "name"), crossed(DAMAGES, STUDY_FILES))
def test_a_study_with_a_damaged_file(name: str, damage: Damage, sound: Path, tmp_path: Path) -> None:
    """The same for studies; the sweep that wrote it mends it."""
    study = tmp_path / "study"
    shutil.copytree(sound / "study", study)
    before = {path.name: path.read_bytes() for path in study.glob("*.parquet") if path.stem != "hosts"}
    damage(study / name)
    for result in (
        fednet("plot", study, "--out", tmp_path / "figures"),
        fednet("compare", study, "--between", "algorithm.lr=0.1", "algorithm.lr=0.2"),
    ):
        assert_told(result, study / name, damage)
    if damage is a_folder:
        (study / name).rmdir()
    mended = fednet("sweep", sound / "study.yaml", "--out", study, "--quiet", "--no-plots")
    assert mended.exit_code == 0, mended.output
    assert {path.name: path.read_bytes() for path in study.glob("*.parquet") if path.stem != "hosts"} == before


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "run quickstart_access",
            "is a study, not a scenario, got 'quickstart_access'; fednet sweep quickstart_access",
        ),
        ("run study.yaml", "study.yaml: is a study, not a scenario, got 'study.yaml'; fednet sweep study.yaml"),
        ("sweep quickstart", "is a scenario, not a study, got 'quickstart'; fednet run quickstart"),
        ("sweep mine.yaml", "mine.yaml: is a scenario, not a study, got 'mine.yaml'; fednet run mine.yaml"),
        ("search mine.yaml", "mine.yaml: is a scenario, not a study, got 'mine.yaml'; fednet run mine.yaml"),
        ("run no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a scenario"),
        ("check no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a scenario"),
        ("sweep no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a study"),
        ("run quickstat.yaml", "no such file, got 'quickstat.yaml'; did you mean 'quickstart'?"),
        ("run no", "no such scenario, got 'no', a folder; give the file in it"),
        ("check quickstart --set data=cifar10", "got 'cifar10'; write {kind: torchvision, name: CIFAR10}"),
        ("check quickstart --set data=mine.npz", "got 'mine.npz'; write {kind: npz, path: mine.npz}"),
        ("check quickstart --set algorithm={cohort:9}", "change single settings by their keys"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    command: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and one line that says what to do."""
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text("base: quickstart\ngrid: {devices.count: [10, 20]}\n", encoding="utf-8")
    Path("mine.yaml").write_text("include: quickstart\nseed: 2\n", encoding="utf-8")
    Path("no").mkdir()

    result = CliRunner().invoke(app, command.split())

    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_changed_kind_leaves_out_is_told_once(tmp_path: Path) -> None:
    """The command checks the scenario and runs it, and prints the line a single time."""
    options = ["--timing-only", "--quiet", "--no-plots", "--out", str(tmp_path / "run"), "--set", "stop.rounds=1"]

    result = CliRunner().invoke(app, ["run", "quickstart", "--set", "algorithm=fedasync", *options])

    assert result.exit_code == 0
    assert result.stderr == "algorithm: fedasync in place of fedavg, so these settings do not apply: cohort\n"

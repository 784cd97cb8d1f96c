"""Scenarios as hostile input: whatever a file says, a command ends with exit code 2 and says where and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fednet_emu.limits import MAX_CHAIN, MAX_FILES, MAX_NESTING, MAX_VALUES
from fednet_emu.scenario import wording
from fednet_emu.scenario.document import load
from tests.commands import fednet
from tests.quick import crossed

QUICKSTART = (Path(__file__).parents[2] / "scenarios/quickstart.yaml").read_text(encoding="utf-8")
LONG = "n" * 300
NOBODY = "~nobody_of_this_name/x"
SHORT = ("--quiet", "--no-plots", "--set", "stop.rounds=1")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*arguments: str) -> str:
    """What a command says that ends with a user's mistake."""
    result = fednet(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


def checked(text: str) -> str:
    """What `fednet check` says about the text of a scenario that is wrong."""
    Path("s.yaml").write_text(text, encoding="utf-8")
    return refused("check", "s.yaml")


def with_setting(old: str, new: str) -> str:
    assert old in QUICKSTART
    return QUICKSTART.replace(old, new)


@pytest.mark.parametrize("name", [LONG, NOBODY, "a/" * 5000, '"a\\0b"'])
@pytest.mark.parametrize(
    ("old", "place"), [("include: urban-micro", "s.yaml:19  channel.include: no such "), ("title:", "")]
)
def test_a_name_that_no_file_can_have_is_an_unknown_name(old: str, place: str, name: str) -> None:
    """Of 300 characters, of 10,000, of no user, or with a zero byte: `channel` and `include` name no file."""
    told = checked(with_setting(old, f"include: {name}\ntitle:" if old == "title:" else f"include: {name}"))

    assert (place or "include: no such ") in told


@pytest.mark.parametrize("name", [LONG, NOBODY, "a/" * 5000, '"a\\0b"', "/dev/zero", "."])
def test_data_at_a_path_that_cannot_be_are_not_found(name: str) -> None:
    """The path of the data is as free as that of a file, and what is no file of numbers is not read as one."""
    told = refused("run", "quickstart", *SHORT, "--set", f"data={{kind: npz, path: {name}}}")

    assert "not found" in told or "cannot be read as an .npz file" in told
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [(LONG, "cannot be a folder (File name too long)"), (NOBODY, "no such user"), ("a\udcff", "must be text")],
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_run(command: str, name: str, why: str) -> None:
    """The name behind `--out` is tried before anything is computed."""
    Path("study.yaml").write_text("base: quickstart\nseeds: 1\nset: {stop.rounds: 1}\n", encoding="utf-8")
    what = ["quickstart", *SHORT] if command == "run" else ["study.yaml", "--quiet"]

    assert f"out: {why}" in refused(command, *what, "--out", name)
    assert [path.name for path in Path().iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("option", ["--data-dir", "--out"])
def test_a_tilde_is_the_home_folder(option: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves the `~` of `--out=~/x` to us; no folder called `~` is made."""
    monkeypatch.setenv("HOME", str(workplace / "home"))

    result = fednet("run", "quickstart", *SHORT, f"{option}=~/there")

    assert result.exit_code == 0, result.output
    assert not Path("~").exists()
    assert (workplace / "home/there/summary.json").exists() == (option == "--out")


@pytest.mark.parametrize("count", ["1e11", "100000000000", str(2**63 - 1), "1000000000000000000"])
def test_more_devices_than_memory_are_refused_before_they_are_made(count: str) -> None:
    """The sentence has the limit, what was asked for, and what is there."""
    told = refused("check", "quickstart", "--set", f"devices.count={count}")

    assert "devices.count: takes " in told
    assert "of memory (400 bytes a device), got " in told
    assert "; this host has " in told


@pytest.mark.parametrize(
    ("old", "number"),
    crossed(
        ["count: 20", "seed: 0", "lr: 0.1", "rounds: 60"],
        ["9" * 5000, "9" * 4000, str(2**63), "0x" + "f" * 5000, "0b" + "1" * 50_000],
    ),
)
def test_whole_numbers_have_a_limit(old: str, number: str) -> None:
    """Beyond 2^63 a whole number is refused, in whatever spelling, without a look at all its digits."""
    told = checked(with_setting(old, f"{old.partition(':')[0]}: {number}"))

    assert "must be a whole number within ±9223372036854775807, got " in told
    assert len(told) < 300


@pytest.mark.parametrize(
    ("depth", "ends"), crossed([MAX_NESTING + 1, 1000, 10_000], [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")])
)
def test_nesting_has_a_limit(depth: int, ends: tuple[str, str]) -> None:
    """However deep a file goes on, it is left at the limit."""
    opening, closing = ends
    told = checked(f"{QUICKSTART}x:\n  {opening * depth}1{closing * depth}\n")

    assert told.startswith("s.yaml:4")
    assert f"is nested deeper than {MAX_NESTING} levels; write it flatter" in told


def test_nesting_of_an_option_has_the_same_limit() -> None:
    """Both the path and the value of `--set` may be deep."""
    assert f"at most {MAX_NESTING} keys, got 10001" in refused("check", "quickstart", "--set", "a." * 10_000 + "b=1")
    deep = "[" * 10_000 + "]" * 10_000
    assert f"nested deeper than {MAX_NESTING}" in refused("check", "quickstart", "--set", f"title={deep}")
    assert "expected a position in a list of 1" in refused(
        "check", "quickstart", "--set", f"model.hidden.{'9' * 5000}=1"
    )


@pytest.mark.parametrize("of_maps", [False, True])
def test_aliases_that_double_are_counted_and_not_written_out(of_maps: bool) -> None:
    """Thirty doublings would be a thousand million values; the count of each alias is kept, so that none is made."""
    doubled = "{{p: *a{0}, q: *a{0}}}" if of_maps else "[*a{0}, *a{0}]"
    lines = [f"a{level}: &a{level} {doubled.format(level - 1)}" for level in range(1, 31)]

    told = checked("\n".join(["a0: &a0 [1]", *lines, QUICKSTART]))

    assert f"holds more than {MAX_VALUES} values, with aliases written out" in told


def test_a_chain_of_includes_has_an_end() -> None:
    """As many as the limit, each file including the next, are one scenario; one more is refused, and so are 300."""
    for number in range(300):
        Path(f"f{number}.yaml").write_text(f"include: f{number + 1}.yaml\n", encoding="utf-8")
    what = f"  include: more than {MAX_CHAIN} files include each other one by one, got one more"

    Path("f300.yaml").write_text("title: the end\n", encoding="utf-8")
    assert load(f"f{300 - MAX_CHAIN}.yaml").data == {"title": "the end"}
    assert f"f299.yaml:1{what}" in refused("check", f"f{299 - MAX_CHAIN}.yaml")
    assert f"f{MAX_CHAIN}.yaml:1{what}" in refused("check", "f0.yaml")


def test_includes_that_multiply_are_counted() -> None:
    """Ten files of which each includes the next ten times: followed for a while, not for ever."""
    for level in range(10):
        Path(f"f{level}.yaml").write_text("x:\n" + f"- include: f{level + 1}.yaml\n" * 10, encoding="utf-8")
    Path("f10.yaml").write_text("y: 1\n", encoding="utf-8")

    assert f"follows more than {MAX_FILES} includes" in refused("check", "f0.yaml")


def test_ten_thousand_unknown_keys_are_told_a_hundred_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for what a key may have meant is the long part: it is done for those that are shown, not for all."""
    explained = []
    problem_of = wording.problem_of
    monkeypatch.setattr(
        "fednet_emu.scenario.problems.problem_of", lambda *given: explained.append(1) or problem_of(*given)
    )

    told = checked(QUICKSTART + "".join(f"k{number}: 1\n" for number in range(10_000)))

    assert len(explained) == 100
    assert told.splitlines()[0] == "10000 problems in the scenario:"
    assert told.splitlines()[1].startswith("  s.yaml:40  k0: no such setting; known: title, ")
    assert told.splitlines()[-1] == "  and 9900 more"
    assert len(told.splitlines()) == 102


FEDUL = "algorithm: {kind: fedul, optimizer: sgd, lr: 0.1, batch_size: 20, augment: rotation}\n"


@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_no_image_is_not_turned(command: str) -> None:
    """Data of known shape are refused at once, those of a file when it has been read."""
    rng = np.random.default_rng(0)
    parts = {"train_x": rng.random((500, 5)), "test_x": rng.random((50, 5))}
    np.savez("flat.npz", train_y=np.arange(500) % 4, test_y=np.arange(50) % 4, **parts)
    start, end = QUICKSTART.index("algorithm:"), QUICKSTART.index("stop:")
    data = "{kind: synthetic, features: 5}" if command == "check" else "{kind: npz, path: flat.npz}"
    text = (QUICKSTART[:start] + FEDUL + QUICKSTART[end:]).replace("data: digits", f"data: {data}")
    Path("s.yaml").write_text(text, encoding="utf-8")

    told = refused(command, "s.yaml")

    assert "algorithm.augment: turns images [channels, height, width], got samples of shape [5]; leave it out" in told


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('"\\e[31mred\\a\\0"', "\\x1b[31mred\\x07\\x00: no such setting"),
        ('"\\u202Ex\\u2066"', "\\u202ex\\u2066: no such setting"),
        ('"a\\nb: fake"', "a\\nb: fake: no such setting"),
        ('":x: [bold]y[/nope]"', ":x: [bold]y[/nope]: no such setting"),
    ],
)
def test_a_key_is_shown_as_it_is(written: str, shown: str) -> None:
    """Control characters and line breaks are escaped; `:x:` is no emoji, and brackets are no markup."""
    told = checked(f"{QUICKSTART}{written}: 1\n")

    assert f"s.yaml:40  {shown}" in told
    assert told.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "\x1b[31mx"),
        ("check", "quickstart", "--set", "\x1b[31mx=1"),
        ("check", "quickstart", "--set", "algorithm.kind=\u202ex"),
        ("check", "quickstart", "--set", "channel=\u202ex"),
        ("run", "quickstart", *SHORT, "--set", "data={kind: npz, path: '\u202ex'}"),
        ("plot", "\x1b[31mx"),
    ],
)
def test_names_steer_no_terminal(arguments: tuple[str, ...]) -> None:
    """What is given on the command line is shown as carefully."""
    assert all(line.isprintable() for line in refused(*arguments).splitlines())


def test_a_title_is_dumped_in_escapes_and_reads_back() -> None:
    """The resolved scenario is text for a terminal and for a parser at once."""
    Path("s.yaml").write_text(with_setting('title: "Q', 'title: "\\e[31m\\u202e:x: Q'), encoding="utf-8")

    told = fednet("check", "s.yaml").stdout
    Path("again.yaml").write_text(told, encoding="utf-8")

    assert 'title: "\\e[31m\\u202e:x: Quickstart' in told
    assert fednet("check", "again.yaml").stdout == told


SECRETS = [
    "SECRET:x:0:0:SECRET:/SECRET\nSECRET:y:1:1:SECRET\n",
    "SECRET: SECRET\n",
    "SECRET=SECRET",
    "{a: *SECRET}",
    "!SECRET {a: !!SECRET 2}",
    "SECRET: [}\n",
    "SECRET: 1\nSECRET: 2\n",
    "'SECRET",
]


@pytest.mark.parametrize(("content", "ending"), crossed(SECRETS, ["", ".txt", ".yaml"]))
def test_an_included_file_that_is_no_scenario_is_not_shown(content: str, ending: str) -> None:
    """Only files that end in .yaml or .yml are read, links to others neither; text that is no mapping is not quoted."""
    Path("secret").write_text(content, encoding="utf-8")
    if ending == ".yaml":
        Path("secret.yaml").symlink_to("secret")
    elif ending:
        Path(f"secret{ending}").write_text(content, encoding="utf-8")

    assert "SECRET" not in checked(with_setting("include: urban-micro", f"include: ./secret{ending}"))


@pytest.mark.parametrize(
    "content", ["SECRET:x:0:0\nSECRET:y:1:1\n", "SECRET=SECRET", "{a: *SECRET}", "'SECRET", "SECRET"]
)
def test_an_included_text_that_is_no_mapping_is_not_quoted(content: str) -> None:
    """With the right ending it is read, but a text that is no settings at all is nobody's misspelt setting."""
    Path("secret.yaml").write_text(content, encoding="utf-8")

    told = checked(with_setting("include: urban-micro", "include: ./secret.yaml"))

    assert told.startswith("secret.yaml:1  ")
    assert "SECRET" not in told


def test_the_passwords_are_not_shown() -> None:
    """`include: /etc/passwd` says that this is another kind of file."""
    told = checked(with_setting("include: urban-micro", "include: /etc/passwd"))

    assert told == (
        "s.yaml:19  channel.include: no such channel, got '/etc/passwd', a file of another kind; "
        "its name must end in .yaml or .yml\n"
    )


@pytest.mark.parametrize(("name", "folder"), [("...yaml", "...yaml"), ("..yaml", "..yaml"), ("....yaml", "...")])
def test_a_scenario_of_dots_writes_where_it_says(name: str, folder: str) -> None:
    """Without its ending `...yaml` would be `..`, the folder above."""
    Path(name).write_text(QUICKSTART, encoding="utf-8")

    result = fednet("run", name, *SHORT)

    assert result.exit_code == 0, result.output
    assert (Path("results") / folder / "seed-0/summary.json").exists()


EXTREMES = ("1e308", "1e-308", "5e-324", "-1e308", ".nan", ".inf", "-.inf")
QUANTITIES = (
    "devices.count",
    "devices.placement.radius_m",
    "devices.speed.median_flop_per_s",
    "devices.straggler.mean_factor",
    "channel.bandwidth_hz",
    "channel.carrier_hz",
    "channel.tx_power_dbm",
    "network.uplink.timeout_s",
    "algorithm.lr",
    "algorithm.deadline_s",
    "algorithm.local_epochs",
    "partition.alpha",
    "stop.simulated_s",
    "stop.bits",
    "evaluation.every_s",
    "training.checkpoint_s",
    "seed",
)


@pytest.mark.parametrize("number", EXTREMES)
def test_extreme_sizes_times_and_rates_are_refused(number: str) -> None:
    """No number outside 1e-40 to 1e40 gets as far as a formula; what is not finite is none."""
    told = refused("check", "quickstart", *(word for key in QUANTITIES for word in ("--set", f"{key}={number}")))

    assert [key for key in QUANTITIES if f"--set {key}  " not in told] == []


@pytest.mark.parametrize(
    "key", ["device.tx_power_dbm", "base_station.noise_figure_db", "noise_density_dbm_hz", "rate.gap_db"]
)
def test_levels_beyond_all_physics_are_refused(key: str) -> None:
    """A level is an exponent: 300,000 dBm are more than any number can hold."""
    told = refused("check", "quickstart", "--set", f"channel.{key}=300000")

    assert f"channel.{key}: must be from -300 to 300 decibels, got 300000" in told


def test_work_too_long_for_the_clock_is_a_mistake() -> None:
    """Within the limits, but 1e18 passes over the data: the clock refuses, and the records are closed all the same."""
    told = refused("run", "quickstart", *SHORT, "--set", "algorithm.local_epochs=1000000000000000000")

    assert "too long for the clock" in told


AXES = "".join(f"  algorithm.x{place}: [{', '.join(map(str, range(100)))}]\n" for place in range(9))


@pytest.mark.parametrize("settings", ["seeds: 1000000000000\n", f"grid:\n{AXES}"])
def test_a_study_has_a_limited_number_of_cells(settings: str) -> None:
    """A product of axes is counted before its cells are made."""
    Path("study.yaml").write_text(f"base: quickstart\n{settings}", encoding="utf-8")

    assert "a study has at most 10000 runs, got " in refused("check", "study.yaml")


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("model.hidden=[10000000, 10000000]", "model: takes "),
        ("model.hidden=[1000000000000000000]", "model: cannot be built"),
        ("data={kind: synthetic, n_samples: 1000000000000}", "data: takes "),
    ],
)
def test_a_model_or_data_beyond_memory_are_refused_before_they_are_made(setting: str, place: str) -> None:
    """Sizes follow from the settings; nothing is allocated to find them."""
    assert place in refused("check", "quickstart", "--set", setting)


def test_a_file_has_a_largest_size() -> None:
    """Fifty megabytes are not parsed."""
    assert "the file is too large, got more than 4194304 bytes" in checked(f"{QUICKSTART}x: {'a' * 5_000_000}\n")


def test_a_lone_surrogate_is_no_text() -> None:
    """What no file could hold in UTF-8 is refused where it is read."""
    assert "must be text in Unicode" in checked(with_setting('title: "Q', 'title: "\\ud800 Q'))

"""Runs beside other users: refusals, traces, records and resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import refuse_contradictions, warnings_of
from fednet_emu.emulation.outlook import Outlook, crowds
from fednet_emu.errors import Deadlock, ScenarioError
from fednet_emu.realtime.options import unfit
from fednet_emu.records.laws import verify
from fednet_emu.records.summaries import other_users
from fednet_emu.testing import run_small, small_scenario

pytestmark = pytest.mark.usefixtures("cells_here")

PHONES = "{name: phones, users: 3, size: {kind: fixed, byte: 20}, gap: {kind: exponential, mean_s: 0.002}}"
PAGES = (
    "{name: pages, users: 2, direction: downlink, size: {kind: exponential, mean_byte: 20}, "
    "gap: {kind: exponential, mean_s: 0.001}, after: end}"
)
BOTH = f"traffic=[{PHONES}, {PAGES}]"


def refusals(*settings: str) -> str:
    """All errors about a scenario."""
    with pytest.raises(ScenarioError) as error:
        refuse_contradictions(Outlook(small_scenario(*settings)), None)
    return "\n".join(error.value.problems)


@pytest.mark.parametrize(
    ("traffic", "text"),
    [
        ("{name: a, users: 0, size: {kind: fixed, byte: 9}, gap: {kind: fixed, mean_s: 1}}", "users send nothing"),
        ("{name: a, size: {kind: fixed, byte: 9}}", "traffic.0.gap: is required without a trace"),
        (f"{PHONES}, {PHONES}", "traffic.1.name: is taken by traffic.0, got phones"),
        (
            "{name: a, size: {kind: bounded-pareto, shape: 1.5, min_byte: 9}, gap: {kind: fixed, mean_s: 1}}",
            "a Pareto law without an end has no variance, give max_byte",
        ),
        ("{name: a, trace: x.csv, gap: {kind: fixed, mean_s: 1}}", "traffic.0.gap: a trace says which files come"),
        ("{name: a, size: {kind: fixed, byte: 9}, gap: {kind: fixed, mean_s: 0}}", "files without gaps never let time"),
    ],
)
def test_settings_that_cannot_be_are_refused(traffic: str, text: str) -> None:
    """Each error names its key and what would be right."""
    assert text in refusals(f"traffic=[{traffic}]")


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("network.uplink.access=over-the-air", "over-the-air says before a round who sends"),
        ("network.uplink.trace={kind: csv, path: rates.csv}", "other users are in recorded rates already"),
    ],
)
def test_bands_without_other_users_are_refused(setting: str, text: str) -> None:
    """Plans, sums over the air and recorded rates have no place for further senders."""
    assert text in refusals(setting, f"traffic=[{PHONES}]")


ACCESSES = [
    "tdma",
    "ofdma",
    "{kind: ofdma, subchannels: 3}",
    "{kind: ofdma, scheduler: equal-finish}",
    "noma",
    "full-reuse",
]
ACCESSES += ["{kind: slotted-aloha, slot_s: 0.0001}", "{kind: ethernet, port_bps: 1e6}", "{kind: noma, max_senders: 2}"]


@pytest.mark.parametrize("access", ACCESSES)
def test_every_access_scheme_keeps_the_laws(access: str) -> None:
    """The federation ends its rounds beside other users, energy is its own, and files obey Little's law."""
    fed = run_small(f"network.uplink.access={access}", BOTH, "stop.rounds=8", timing_only=True)
    exclusive = frozenset({"uplink", "downlink"}) if access == "tdma" else frozenset({"downlink"})
    assert not [text for text in verify(fed.ledger, exclusive).values() if text]
    assert fed.round == 8
    assert len(fed.ledger.traffic) > 5
    assert fed.ledger.transfers.column("sender").max() < 4
    found = other_users(fed.ledger, fed.clock.now)
    assert found["phones"]["files"] + found["pages"]["files"] == len(fed.ledger.traffic)


def test_a_class_without_files_has_its_direction() -> None:
    """The first page comes after the end of the run."""
    fed = run_small(BOTH.replace("mean_s: 0.001", "mean_s: 1e6"), timing_only=True)
    found = other_users(fed.ledger, fed.clock.now)

    assert found["pages"]["files"] == 0
    assert {name: its["direction"] for name, its in found.items()} == {"phones": "uplink", "pages": "downlink"}


@pytest.mark.parametrize(
    "more",
    [
        ("network.uplink.access=nr-grants", "channel=urban-micro", "network.downlink.access=nr-grants"),
        ("network.transport={kind: tcp}", "network.downlink.mode=unicast", "network.uplink.idle={kind: rrc}"),
        ("network.uplink.access=dcf", "channel.bandwidth_hz=2e7", "channel.rate=shannon"),
        ("network.cells={kind: list, xy_m: [[-20, 0], [20, 0]]}", "channel=urban-micro", "network.uplink.access=ofdma"),
        ("devices.mobility={kind: random-waypoint, max_speed_m_s: 2}", "channel=urban-micro"),
        (
            "devices.battery={capacity_j: 1e-3, harvesting: {kind: poisson, arrival_j: 5e-4, mean_interval_s: 1e-3}}",
            "devices.compute_energy={kind: measured, active_w: 1.0}",
        ),
        ("devices.availability={kind: periodic, on_s: 0.01, off_s: 0.002}", "stop.rounds=2"),
    ],
)
def test_other_parts_of_a_network_work_beside_other_users(more: tuple[str, ...]) -> None:
    """Slots, transport, contention, several cells, movement, batteries and absence: laws hold, rounds end."""
    fed = run_small(*more, BOTH, timing_only=True)
    assert not [text for text in verify(fed.ledger, frozenset()).values() if text]
    assert fed.round >= 2
    assert len(fed.ledger.traffic) > 0


def test_the_same_files_without_the_federation() -> None:
    """`idle` has the files of a run with rounds, with the same arrivals and sizes until its end."""
    both = [
        run_small(BOTH, "stop={simulated_s: 0.02}", more, timing_only=True) for more in ("seed=0", "algorithm=idle")
    ]
    columns = "traffic_class", "user", "requested_ns", "size_bit"
    rows = [zip(*(fed.ledger.traffic.column(name).tolist() for name in columns), strict=True) for fed in both]
    phones = [sorted(row for row in its if row[0] == 0) for its in rows]
    assert phones[0] == phones[1] != []
    assert len(both[1].ledger.transfers) == 0
    assert "give stop.simulated_s" in refusals("algorithm=idle")


LOSSES = (
    "network.uplink.message_loss={kind: random, probability: 0.3}",
    "network.downlink.message_loss={kind: random, probability: 0.3}",
)
GRANTS = "network.uplink.access=nr-grants", "network.downlink.access=nr-grants"


@pytest.mark.parametrize(
    "settings",
    [
        LOSSES,
        ("network.uplink.access=ofdma", "network.cells={kind: list, xy_m: [[-20, 0], [20, 0]]}", *LOSSES),
        ("network.uplink.access={kind: slotted-aloha, slot_s: 0.0001}",),
        (*GRANTS, "channel=urban-micro"),
    ],
)
def test_the_number_of_devices_changes_no_file(settings: tuple[str, ...]) -> None:
    """Without a federation that sends, files are sent, repeated and lost as beside another number of devices."""
    idle = (BOTH, "algorithm=idle", "stop={simulated_s: 0.1}", *settings)
    few, many = (run_small(*idle, f"devices.count={count}", timing_only=True).ledger.traffic for count in (3, 11))
    assert len(few) > 50
    assert few.frame().equals(many.frame())
    assert settings[-1] != LOSSES[-1] or 0.2 < (few.frame()["loss_reason"] == "erased").mean() < 0.4


def test_a_federation_changes_no_loss_of_a_file() -> None:
    """Beside rounds of any number of devices, a user loses the same of its files, which come later."""
    lost = []
    for count in (3, 8):
        settings = f"devices.count={count}", f"algorithm.cohort={count}", "stop.rounds=20", *LOSSES
        table = run_small(BOTH, *settings, timing_only=True).ledger.traffic.frame()
        ended = table[table["loss_reason"] != "end"]
        lost.append([own["loss_reason"].tolist() for _, own in ended.groupby(["traffic_class", "user"], observed=True)])
    for one, other in zip(*lost, strict=True):
        both = min(len(one), len(other))
        assert one[:both] == other[:both]
    assert sum(map(len, lost[0])) > 50


def test_the_draws_of_the_federation_stay() -> None:
    """Computations with random slowdowns last as long beside other users as without."""
    slow = "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}"
    spans = []
    for settings in ((slow,), (slow, BOTH)):
        column = run_small(*settings, timing_only=True).ledger.computes.column
        order = np.lexsort((column("started_ns"), column("device")))
        spans.append((column("ended_ns") - column("started_ns"))[order].tolist())
    assert spans[0] == spans[1]


def test_an_overload_ends_the_run() -> None:
    """At a load far above 1 the number of waiting files grows to the limit, and the error says whose they are."""
    heavy = "{name: phones, size: {kind: fixed, byte: 20000}, gap: {kind: fixed, mean_s: 0.000001}}"
    with pytest.raises(ScenarioError, match="traffic: phones have 10,000 files waiting after"):
        run_small(f"traffic=[{heavy}]", timing_only=True)


def test_an_algorithm_that_waits_for_ever_is_a_deadlock() -> None:
    """Files that come for ever do not hide that the algorithm waits for an event that never comes."""
    scenario = small_scenario(BOTH)
    fed = build(scenario, timing_only=True)

    class Waits:
        def run(self, fed: Any) -> Any:
            yield fed.inbox().collect(at_least=1)

    with pytest.raises(Deadlock):
        fed.run(Waits())


def test_files_of_a_table_and_of_another_run(tmp_path: Path) -> None:
    """A CSV file says user, start and size; the uploads of another run load the air as they did there."""
    trace = tmp_path / "flows.csv"
    trace.write_text("user,start_s,size_byte\nann,0.001,10\nbob,0.001,20\nann,0.002,30\n", encoding="utf-8")
    fed = run_small(f"traffic=[{{name: seen, trace: {trace}}}]", timing_only=True)
    table = fed.ledger.traffic.frame().sort_values(["requested_s", "user"])
    assert table[["user", "requested_s", "size_bit"]].to_numpy().tolist() == [
        [0, 0.001, 80],
        [1, 0.001, 160],
        [0, 0.002, 240],
    ]
    run = fe.run(small_scenario(), out=tmp_path / "run", timing_only=True)
    again = run_small(f"traffic=[{{name: seen, trace: {tmp_path / 'run'}}}]", timing_only=True).ledger.traffic.frame()
    uploads = run.transfers[run.transfers["direction"] == "uplink"]
    assert sorted(again["requested_s"]) == sorted(uploads["requested_s"])
    trace.write_text("user,start_s,size_byte\nann,3.5,10\nbob,3.2,20\n", encoding="utf-8")
    with pytest.raises(fe.FednetError, match=r"flows.csv:3: start_s falls, 3.2 after 3.5"):
        run_small(f"traffic=[{{name: seen, trace: {trace}}}]", timing_only=True)


def test_unfinished_files_are_lower_bounds() -> None:
    """A file that the end cuts off counts with its time so far, and the statistics say that they are lower bounds."""
    slow = "{name: big, users: 3, place: per-file, size: {kind: fixed, byte: 20000}, gap: {kind: fixed, mean_s: 0.001}}"
    fed = run_small("network.uplink.access=ofdma", f"traffic=[{slow}]", "stop={simulated_s: 0.02}", timing_only=True)
    found = other_users(fed.ledger, fed.clock.now)["big"]
    assert found["unfinished"] == found["files"] == 20
    assert found["mean_s"] == pytest.approx(0.0095)
    assert found["at_least"] == ["mean_s", "p50_s", "p95_s", "p99_s"]
    assert found["offered_bit"] == 160_000 * found["files"]
    assert found["delivered_bit"] == 0


LIBRARY = ("ftp-1", "ftp-2", "ftp-3", "full-buffer", "voip", "web", "bursts")


@pytest.mark.parametrize("name", LIBRARY)
def test_a_model_of_the_library_is_a_file_of_settings(name: str) -> None:
    """Each is included by its name, and a key that is given wins."""
    (its,) = small_scenario(f"traffic=[{{include: traffic/{name}, users: 7, name: mine}}]").traffic
    assert (its.name, its.users) == ("mine", 7)
    assert its.size is not None
    assert its.size.mean > 0


def test_heavy_tails_have_the_second_moment_that_their_file_states() -> None:
    """Shape 1.5 and a ratio of 100: E[s^2] = 3.7 E[s]^2."""
    (its,) = small_scenario("traffic=[{include: traffic/bursts}]").traffic
    assert its.size is not None
    sizes = its.size.quantiles((np.arange(10**6) + 0.5) / 10**6)
    assert (sizes**2).mean() / its.size.mean**2 == pytest.approx(3.7, abs=0.05)


def test_an_explanation_says_what_went_to_other_users(tmp_path: Path) -> None:
    """Parts of the rounds add up to their length, some went to phones, and runs without phones are sooner."""
    busy = f"traffic=[{PHONES.replace('byte: 20', 'byte: 60')}]"
    for access, what in (("ofdma", "others"), ("tdma", "behind others")):
        run = fe.run(small_scenario(f"network.uplink.access={access}", busy, "stop.rounds=8"), out=tmp_path / access)
        path = run.explain()
        spent = path.kinds.set_index("what")["took_s"]
        assert spent[what] > 0
        assert spent.sum() == pytest.approx(run.rounds["ended_s"].iloc[-1])
        gains = {its.title: its.simulated_s for its in path.remedies}
        assert gains["without other users"] is not None
        assert gains["without other users"] < path.took_s
        assert gains["in a slice that goes first"] is not None


def test_a_study_ranks_settings_by_the_delay_of_other_users(tmp_path: Path) -> None:
    """`neighbours` is the largest 95 % quantile of a class, and limits and ranks like other costs."""
    phones = PHONES.replace("byte: 20", "byte: 60")
    settings = {"network.uplink.access": "ofdma", "stop.rounds": 12, "data.n_samples": 400}
    scenario = small_scenario(*(f"{key}={value}" for key, value in settings.items()), f"traffic=[{phones}]")
    study = fe.sweep(
        scenario, grid={"network.slices": [{"fl": {"priority": 1}}, {"others": {"priority": 1}}]}, seeds=[1, 2],
        out=tmp_path / "study", target={"loss": 5.0},
    )  # fmt: skip
    known = study.runs.groupby("network.slices")["neighbours_p95_s"].mean()
    assert known.notna().all()
    best = study.best(minimise="neighbours")
    assert best.minimised == "neighbours"
    summaries = [run.summary["traffic"]["phones"] for run in study]
    assert study.runs["neighbours_at_least"].tolist() == ["p95_s" in its["at_least"] for its in summaries]
    heavy = f"traffic=[{phones.replace('byte: 60', 'byte: 60000')}]"
    short = fe.sweep(
        small_scenario("network.uplink.access=ofdma", heavy), grid={"stop.rounds": [2, 4]}, seeds=[1],
        out=tmp_path / "short", target={"loss": 5.0},
    )  # fmt: skip
    assert short.runs["neighbours_at_least"].all(), "no file ends"
    assert "at least" in str(short.best(loss=5.0, minimise="neighbours"))
    plain = fe.sweep(
        small_scenario(), grid={"stop.rounds": [3, 4]}, seeds=[1], out=tmp_path / "plain", target={"loss": 9.0}
    )
    with pytest.raises(fe.FednetError, match="neighbours: is not recorded"):
        plain.best(minimise="neighbours")


def test_an_overload_is_foreseen() -> None:
    """A load above 1 of the uplink is a warning that names the class and the load."""
    heavy = "{name: phones, users: 4, size: {kind: fixed, byte: 2500}, gap: {kind: fixed, mean_s: 0.04}}"
    outlook = Outlook(small_scenario(f"traffic=[{heavy}]"))
    (crowd,) = crowds(outlook)
    assert crowd.loads.tolist() == pytest.approx([4 * 20_000 / 0.04 / 1e6])
    (warning,) = (text for path, text in warnings_of(outlook) if path[0] == "traffic")
    assert "phones offer 2 Mbit/s, which makes the load 2" in warning
    assert "100 files/s" in outlook.company


STREET = ("channel=urban-micro", "channel.fading=none", "network.cells={kind: list, xy_m: [[0, 0], [400, 0]]}")


def test_the_load_is_that_of_the_cell_with_the_most() -> None:
    """Ten users beside the first of two stations load this cell alone."""
    near = "{name: near, users: 10, placement: {kind: disc, radius_m: 10, inner_radius_m: 5}, "
    flow = "size: {kind: fixed, byte: 100000}, gap: {kind: exponential, mean_s: 1}}"
    outlook = Outlook(small_scenario(*STREET, f"traffic=[{near}{flow}]"))
    (crowd,) = crowds(outlook)
    assert crowd.loads[0] > 0
    assert crowd.loads[1] == 0
    alone = Outlook(small_scenario(*STREET[:2], f"traffic=[{near}{flow}]"))
    assert crowd.loads[0] == pytest.approx(next(crowds(alone)).loads[0])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("network.uplink.access=noma", "phones 2 of the rate of a lone sender on the uplink"),
        ("network.uplink.access={kind: slotted-aloha, slot_s: 0.01}", "phones at least 2 of the rate of a lone"),
        ("network.transport=tcp", "phones at least 2"),
    ],
)
def test_an_estimate_that_leaves_something_out_says_so(settings: str, text: str) -> None:
    """Where senders overlap, a load has no verdict; contention and transports take further time."""
    heavy = "{name: phones, users: 4, size: {kind: fixed, byte: 2500}, gap: {kind: fixed, mean_s: 0.04}}"
    outlook = Outlook(small_scenario(settings, f"traffic=[{heavy}]"))
    assert text in outlook.company
    queues = [text for path, text in warnings_of(outlook) if path[0] == "traffic" and "queues grow" in text]
    assert len(queues) == (settings == "network.transport=tcp")


def test_users_out_of_reach_are_told_apart_and_break_no_law() -> None:
    """Users at 4.9 km never reach the station: a warning names them, and turns that they give back are no airtime."""
    far = "{name: far, users: 3, placement: {kind: disc, radius_m: 4910, inner_radius_m: 4900}, "
    flow = "size: {kind: fixed, byte: 2000}, gap: {kind: exponential, mean_s: 0.0002}}"
    settings = (*STREET[:2], "channel.device.tx_power_dbm=0", f"traffic=[{far}{flow}]")
    (warning,) = (text for path, text in warnings_of(Outlook(small_scenario(*settings))) if path[0] == "traffic")
    assert "far has users out of reach, whose files are lost, got 3 of 3" in warning
    fed = run_small(*settings, timing_only=True)
    assert len(fed.ledger.traffic) > 3
    assert not any(verify(fed.ledger, frozenset({"uplink"})).values())


def offers(name: str, load: float) -> str:
    """A class of users that offers a load of 1 Mbit/s in a slice of its own."""
    byte = round(1000 * load)
    return f"{{name: {name}, slice: {name}, size: {{kind: fixed, byte: {byte}}}, gap: {{kind: fixed, mean_s: 0.008}}}}"


@pytest.mark.parametrize(
    ("slices", "a", "b", "overloaded"),
    [
        ("a: {}, b: {}", 0.3, 0.6, {}),
        ("a: {max: 0.2}, b: {}", 0.3, 0.6, {"a": 0.2}),
        ("a: {}, b: {}, fl: {dedicated: 0.5}", 0.3, 0.4, {"a": 0.25, "b": 0.25}),
        ("a: {}, b: {weight: 3}", 0.3, 0.7, {"a": 0.3}),
        ("a: {}, b: {weight: 3}", 0.2, 0.85, {"b": 0.8}),
        ("a: {min: 0.3}, b: {weight: 3}", 0.29, 0.8, {"b": 0.71}),
        ("a: {priority: 0}, b: {priority: 1}", 0.7, 0.4, {"b": 0.3}),
        ("a: {priority: 0}, b: {priority: 1, min: 0.5}", 0.7, 0.4, {"a": 0.6}),
        ("a: {dedicated: 0.4}, b: {}", 0.1, 0.65, {"b": 0.6}),
    ],
)
def test_the_overload_of_a_slice_is_foreseen(slices: str, a: float, b: float, overloaded: Any) -> None:
    """A slice is compared with what it can get beside the loads of the others, and named."""
    scenario = small_scenario(
        "network.uplink.access=ofdma", f"traffic=[{offers('a', a)}, {offers('b', b)}]", f"network.slices={{{slices}}}"
    )
    texts = {path[1]: text for path, text in warnings_of(Outlook(scenario)) if path[0] == "traffic"}
    assert texts.keys() == {str("ab".index(name)) for name in overloaded}
    for name, most in overloaded.items():
        said = f"the load of slice {name} {a if name == 'a' else b}, which can carry at most {most}"
        assert said in texts[str("ab".index(name))]


@pytest.mark.parametrize(("priority", "overloaded"), [(0, {"0", "1"}), (1, {"1"})])
def test_turns_of_one_priority_are_overloaded_together(priority: int, overloaded: set[str]) -> None:
    """In turns, slices of one priority wait for each other, and slices of a higher priority do not."""
    slices = f"network.slices={{a: {{}}, b: {{priority: {priority}}}}}"
    outlook = Outlook(small_scenario(f"traffic=[{offers('a', 0.7)}, {offers('b', 0.4)}]", slices))
    assert {path[1] for path, _ in warnings_of(outlook) if path[0] == "traffic"} == overloaded


def test_a_live_run_refuses_other_users() -> None:
    """Real programs have no files of users that are not there."""
    assert "traffic" in {path[0] for path, _ in unfit(small_scenario(BOTH))}


def test_a_run_without_a_federation_has_a_report_and_no_rank(tmp_path: Path) -> None:
    """The report of an idle run is written; a study by `neighbours` says that it never reaches the target."""
    idle = fe.run(small_scenario("algorithm=idle", "stop={simulated_s: 0.05}", BOTH), out=tmp_path / "idle")
    assert idle.report(tmp_path / "page.html").stat().st_size > 0

    fedavg = {"kind": "fedavg", "cohort": 3, "lr": 0.1, "local_steps": 2, "batch_size": 8}
    study = fe.sweep(
        small_scenario("stop={simulated_s: 0.1}", BOTH), grid={"algorithm": [{"kind": "idle"}, fedavg]}, seeds=[1, 2],
        out=tmp_path / "study", target={"loss": 5.0},
    )  # fmt: skip
    best = study.best(minimise="neighbours")
    assert [its.not_ranked for its in best.settings] == ["", "no run reached loss 5"]

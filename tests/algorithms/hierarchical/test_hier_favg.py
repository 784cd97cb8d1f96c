"""HierFAVG: fedavg as its limit, a loop by hand, its times, bits and joules in closed form, losses and handovers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from fednet_emu.federation import EdgeServers
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ENGINES

MODEL_BIT = 320
ADDED = ("value_id", "input", "result")
"""Columns with the numbers of values, of which there are others where there are edge servers."""


def hier(more: str = "") -> str:
    """The algorithm, with all four devices in a cohort."""
    return f"algorithm={{kind: hier-favg, cohort: 4, lr: 0.1, batch_size: 8, local_steps: 5, {more}}}"


FEDAVG = "algorithm={kind: fedavg, cohort: 4, lr: 0.1, batch_size: 8, local_steps: 5}"
THREE_STATIONS = (
    "channel={include: urban-micro, shadowing: {kind: none}}",
    "network.cells={kind: list, xy_m: [[-60, 0], [60, 0], [0, 400]]}",
    "devices.placement={kind: list, xy_m: [[-50, 0], [-40, 10], [40, 0], [55, 0]]}",
    "data.n_samples=83",
)
"""Two devices at each of two stations, and a station far from all of them; three devices have 21 samples, one 20."""
ON_THE_MOVE = (
    *THREE_STATIONS,
    "devices.region={kind: disc, radius_m: 80}",
    "devices.mobility={kind: random-direction, min_speed_m_s: 20, max_speed_m_s: 30, mean_leg_s: 20}",
    "devices.speed.flop_per_s=1e3",
    "network.uplink.message_loss={kind: random, probability: 0.1}",
    "stop.rounds=8",
)


def trained(*changes: str) -> tuple[Tensor, Federation]:
    """The final model of a run that keeps the conservation laws, and its federation."""
    fed = small_federation(*changes)
    final = fed.run(small_scenario(*changes).algorithm)
    assert final is not None
    assert not any(verify(fed.ledger, frozenset()).values())
    return fed.read(final), fed


def events(fed: Federation) -> dict[str, pd.DataFrame]:
    """What happened on the air and on the devices, and when, in an order of its own."""
    told = {}
    for name in ("transfers", "receptions", "computes", "rounds"):
        rows = fed.ledger.frame(name).drop(columns=[*ADDED, "transfer"], errors="ignore")
        told[name] = rows.sort_values(list(rows), ignore_index=True)
    return told


# ---- fedavg as a limit -----------------------------------------------------------------------------------------------

LIMITS = {
    "one station": ("data.n_samples=83",),
    "one station, losses": ("data.n_samples=83", "network.uplink.message_loss={kind: random, probability: 0.3}"),
    "three stations": THREE_STATIONS,
    "three stations, handovers": ON_THE_MOVE,
}


@pytest.mark.parametrize("where", LIMITS)
def test_with_one_edge_round_and_an_ideal_backhaul_it_is_fedavg(where: str) -> None:
    """Same transfers, computations and rounds to the nanosecond and the bit; the same model, of one station bitwise.

    With several stations floats are added in another order, so that the last digits of the model may differ.
    """
    flat, fedavg = trained(*LIMITS[where], FEDAVG)
    ours, fed = trained(*LIMITS[where], hier("edge_rounds: 1"))
    expected, found = events(fedavg), events(fed)

    assert not torch.equal(flat, fedavg.task.model.initial())
    for name, rows in expected.items():
        pd.testing.assert_frame_equal(found[name], rows, check_exact=True)
    assert fed.ledger.energy_j == pytest.approx(fedavg.ledger.energy_j, rel=1e-12)
    assert (fed.ledger.sent_bit, fed.ledger.backhaul_j) == (fedavg.ledger.sent_bit, 0.0)
    if where.startswith("one"):
        assert torch.equal(ours, flat)
    else:
        torch.testing.assert_close(ours, flat, rtol=1e-5, atol=1e-6)


# ---- a loop by hand --------------------------------------------------------------------------------------------------


def by_hand(fed: Federation, members: list[list[int]], rounds: int, k1: int, k2: int, lr: float) -> Tensor:
    """Algorithm 1 of the paper in double precision: full gradients, models (not updates) averaged at both levels."""
    data = fed.task.data
    inputs = torch.cat([data.x.double(), torch.ones(len(data.x), 1, dtype=torch.float64)], 1)
    targets, cloud = data.y.double(), fed.task.model.initial().double()
    for _ in range(rounds):
        edge_models, edge_samples = [], []
        for devices in members:
            edge, samples = cloud.clone(), sum(int(fed.task.n_samples[k]) for k in devices)
            for _ in range(k2):
                total = torch.zeros_like(edge)
                for k in devices:
                    rows, w = fed.task.slice_of(k), edge.clone()
                    x, y = inputs[rows], targets[rows]
                    for _ in range(k1):
                        w = w - lr * 2 / len(y) * x.T @ (x @ w - y)
                    total += len(y) * w
                edge = total / samples
            edge_models.append(edge)
            edge_samples.append(samples)
        cloud = sum(n * w for n, w in zip(edge_samples, edge_models, strict=True)) / sum(edge_samples)
    return cloud


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_algorithm_of_the_paper(engine: str) -> None:
    """Six rounds of k1 = 3, k2 = 2 over two unequal edge servers: the model of a loop by hand, to 1e-5."""
    places = "devices.placement={kind: list, xy_m: [[-50, 0], [40, 0], [45, 5], [55, 0]]}"
    algorithm = "algorithm={kind: hier-favg, cohort: 4, lr: 0.02, batch_size: null, local_steps: 3, edge_rounds: 2}"
    partition = "partition={kind: quantity-skew, beta: 1.0, min_samples: 5}"
    ours, fed = trained(*THREE_STATIONS, places, partition, algorithm, "stop.rounds=6", f"training.engine={engine}")
    expected = by_hand(fed, [[0], [1, 2, 3]], rounds=6, k1=3, k2=2, lr=0.02)
    flat = by_hand(fed, [[0, 1, 2, 3]], rounds=6, k1=3, k2=2, lr=0.02)

    assert len(set(fed.task.n_samples.tolist())) > 1
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
    assert (flat - expected).abs().max() > 1e-3  # one edge server for all would be told apart


def test_edge_rounds_draw_the_batches_of_as_many_rounds() -> None:
    """One station: two rounds of two edge rounds see the batches of four rounds of fedavg, and end where they do."""
    ours, _ = trained("data.n_samples=83", hier("edge_rounds: 2"), "stop.rounds=2")
    flat, _ = trained("data.n_samples=83", FEDAVG, "stop.rounds=4")
    other, _ = trained("data.n_samples=83", FEDAVG, "stop.rounds=4", "seed=1")

    torch.testing.assert_close(ours, flat, rtol=1e-5, atol=1e-6)
    assert (flat - other).abs().max() > 1e-3


def test_an_edge_server_weighs_what_all_of_its_edge_rounds_have_brought() -> None:
    """A device that leaves before the second edge round counts once: three models of one station, four of the other.

    What each station moves by is seen in a run in which the other one has nobody.
    """
    far = (*THREE_STATIONS, "channel.rate={kind: fixed, bit_rate_bps: 1e6}", "stop.rounds=1")
    algorithm = "algorithm={kind: hier-favg, cohort: 4, lr: 0.1, batch_size: null, local_steps: 5, edge_rounds: 2}"

    def moved(*absent: int) -> Tensor:
        windows = {1: "[[0, 0.005], [9, 10]]", **dict.fromkeys(absent, "[[9, 10]]")}
        there = ", ".join(f"{k}: {window}" for k, window in windows.items())
        away = f"devices.availability={{kind: windows, devices: {{{there}}}}}"
        final, fed = trained(*far, algorithm, away)
        samples.update({k: int(fed.task.n_samples[k]) for k in range(4)})
        arrived.append(int(fed.ledger.rounds.column("arrived")[0]))
        return final - fed.task.model.initial()

    samples: dict[int, int] = {}
    arrived: list[int] = []
    first, second, both = moved(2, 3), moved(0, 1), moved()
    weights = 2 * samples[0] + samples[1], 2 * samples[2] + 2 * samples[3]

    assert arrived == [3, 4, 7]
    assert (first - second).abs().max() > 1e-2
    torch.testing.assert_close(both, (weights[0] * first + weights[1] * second) / sum(weights), rtol=1e-4, atol=1e-6)


# ---- times, bits and joules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize("k2", [1, 3])
def test_a_round_in_closed_form(k2: int, timing_only: bool) -> None:
    """B/R + d on either way of the backhaul, and k2 times: a broadcast, k1 steps, an upload of each device in turn.

    Messages on the backhaul have headers, too. With B bits, R bit/s and e J/bit the backhaul sends 2 B and takes 2 B e.
    """
    backhaul = "network.edge_servers.backhaul={rate_bps: 1e5, delay_s: 0.01, energy_j_per_bit: 1e-6}"
    algorithm = (
        f"algorithm={{kind: hier-favg, cohort: 4, lr: 0.1, batch_size: null, local_steps: 2, edge_rounds: {k2}}}"
    )
    fed = run_small(backhaul, algorithm, "network.overhead={kind: header, header_bit: 80}", timing_only=timing_only)
    bits = MODEL_BIT + 80
    edge_round_s = bits / 1e6 + 2 * 720e-6 + 4 * bits / 1e6
    round_s = 2 * (bits / 1e5 + 0.01) + k2 * edge_round_s
    rounds = fed.ledger.frame("rounds")

    assert rounds["ended_s"].tolist() == pytest.approx([round_s, 2 * round_s, 3 * round_s], abs=1e-12)
    assert (rounds["invited"].tolist(), rounds["arrived"].tolist()) == ([4 * k2] * 3, [4 * k2] * 3)
    assert fed.ledger.sent_bit == [3 * k2 * 4 * bits, 3 * k2 * bits, 0]
    assert fed.ledger.backhaul_bit == 3 * 2 * bits
    assert fed.ledger.backhaul_j == pytest.approx(3 * 2 * bits * 1e-6)
    parts_j = [fed.ledger.frame(name)[what].sum() for name, what in (("transfers", "energy_j"),
               ("transfers", "rx_energy_j"), ("computes", "energy_j"))]  # fmt: skip
    assert fed.ledger.energy_j - fed.ledger.backhaul_j == pytest.approx(sum(parts_j))


def test_an_edge_server_without_devices_gets_the_model_and_sends_nothing() -> None:
    """Of three stations the one far from all has rounds without anybody; two updates go up, three models down."""
    fed = trained(*THREE_STATIONS, hier("edge_rounds: 2"))[1]
    messages, edge_rounds = fed.ledger.frame("backhaul"), pd.DataFrame(fed.ledger.series["edge_rounds"])
    alone = edge_rounds[edge_rounds["edge"] == 2]

    assert messages.groupby(["edge", "direction"], observed=True).size().to_dict() == {
        (0, "down"): 3, (0, "up"): 3, (1, "down"): 3, (1, "up"): 3, (2, "down"): 3,
    }  # fmt: skip
    assert (len(alone), alone["invited"].sum()) == (6, 0)
    assert edge_rounds["arrived"].sum() == fed.ledger.rounds.column("arrived").sum() == 3 * 2 * 4


# ---- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 2])
def test_what_the_backhaul_loses_is_sent_again_so_often_and_no_more(retries: int) -> None:
    """With every message lost nobody is invited, each edge server is sent 1 + retries messages, and the model stays."""
    lost = "network.edge_servers.backhaul={rate_bps: 1e6, message_loss: {kind: random, probability: 0.9999999}}"
    ours, fed = trained(lost, hier(f"backhaul_retries: {retries}"))

    assert torch.equal(ours, fed.task.model.initial())
    assert fed.ledger.rounds.column("invited").tolist() == [0, 0, 0]
    assert len(fed.ledger.backhaul) == 3 * (1 + retries)
    assert fed.ledger.frame("rounds")["ended_s"].iloc[-1] == pytest.approx(3 * (1 + retries) * MODEL_BIT / 1e6)


def test_a_lossy_backhaul_leaves_out_edge_servers_and_goes_on() -> None:
    """Half of the messages lost and none sent again: some rounds have both edge servers, some one, some none."""
    lost = "network.edge_servers.backhaul.message_loss={kind: random, probability: 0.5}"
    fed = trained(*THREE_STATIONS, lost, hier("edge_rounds: 1, backhaul_retries: 0"), "stop.rounds=40")[1]

    assert set(fed.ledger.rounds.column("invited").tolist()) == {0, 2, 4}
    assert set(fed.ledger.rounds.column("arrived").tolist()) == {0, 2, 4}
    assert fed.ledger.rounds.column("arrived").sum() < fed.ledger.rounds.column("invited").sum()


def test_a_deadline_is_that_of_an_edge_round() -> None:
    """A device that needs minutes is left out of each of two edge rounds of a second each; the round takes two."""
    speed = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}"
    fed = run_small(speed, hier("edge_rounds: 2, deadline_s: 1"), timing_only=True)

    assert fed.ledger.frame("rounds")["ended_s"].tolist() == pytest.approx([2.0, 4.0, 6.0])
    assert fed.ledger.rounds.column("arrived").tolist() == [6, 6, 6]


# ---- handover --------------------------------------------------------------------------------------------------------


def downloads(fed: Federation) -> pd.DataFrame:
    """Every reception of a downlink: receiver, requested_s, cell, ended_s."""
    transfers, receptions = fed.ledger.frame("transfers"), fed.ledger.frame("receptions")
    several = receptions.merge(transfers.drop(columns=["receiver", "loss_reason"]), on="transfer")
    single = transfers[(transfers["direction"] == "downlink") & (transfers["receivers"] == 1)]
    return pd.concat([single, several])[["receiver", "requested_s", "cell", "ended_s"]]


def detours(fed: Federation) -> list[tuple[int, int, float]]:
    """Uploads that arrive at another station than that of the device's last download: (station, home, ended_s)."""
    transfers, downs, found = fed.ledger.frame("transfers"), downloads(fed), []
    for upload in transfers[(transfers["direction"] == "uplink") & (transfers["loss_reason"] == "")].itertuples():
        mine = downs[(downs["receiver"] == upload.sender) & (downs["ended_s"] <= upload.requested_s)]
        home = int(mine.sort_values("ended_s")["cell"].iloc[-1])
        if home != upload.cell:
            found.append((int(upload.cell), home, float(upload.ended_s)))
    return found


def test_an_upload_after_a_handover_takes_the_detour_over_the_cloud() -> None:
    """From the station that it reaches up to the cloud and down to the one that waits for it: two messages each."""
    delay = "network.edge_servers.backhaul={delay_s: 0.25}"
    fed = trained(*ON_THE_MOVE, delay, hier("edge_rounds: 2"))[1]
    messages, handed_over = fed.ledger.frame("backhaul"), detours(fed)
    sent = {(row.edge, row.direction, round(row.requested_s, 9)) for row in messages.itertuples()}
    per_round = (messages["direction"] == "down").sum() - len(handed_over)

    assert len(handed_over) >= 5
    for station, home, ended_s in handed_over:
        assert (station, "up", round(ended_s, 9)) in sent
        assert (home, "down", round(ended_s + 0.25, 9)) in sent
    assert per_round == 3 * fed.round  # besides, one model for each edge server and round


def test_a_device_works_for_one_edge_server_at_a_time() -> None:
    """Edge servers do not wait for each other, and devices move: still each receives, computes and sends in turn."""
    speeds = "devices.speed={kind: list, flop_per_s: [2e3, 1e3, 5e2, 1e3]}"
    fed = trained(*ON_THE_MOVE, hier("edge_rounds: 3"), speeds)[1]
    computes, transfers = fed.ledger.frame("computes"), fed.ledger.frame("transfers")
    uploads = transfers[transfers["direction"] == "uplink"]
    spans = pd.concat([
        downloads(fed).set_axis(["device", "began_s", "cell", "ended_s"], axis=1),
        computes[["device", "started_s", "ended_s"]].set_axis(["device", "began_s", "ended_s"], axis=1),
        uploads[["sender", "requested_s", "ended_s"]].set_axis(["device", "began_s", "ended_s"], axis=1),
    ]).sort_values(["device", "began_s", "ended_s"])  # fmt: skip
    gap_s = spans["began_s"] - spans.groupby("device")["ended_s"].shift()
    invited = pd.DataFrame(fed.ledger.series["edge_rounds"]).groupby("round")["invited"].sum()

    assert gap_s.min() > -1e-9
    assert invited.tolist() == fed.ledger.rounds.column("invited").tolist()
    assert len(set(invited)) > 1  # sometimes a device comes too late for an edge round, or in time for another one


def test_edge_servers_are_where_the_signal_is_strongest() -> None:
    """With these places two devices belong to each of the first two stations, and their transfers say so."""
    fed = run_small(*THREE_STATIONS, hier(), timing_only=True)
    uploads = fed.ledger.frame("transfers").query("direction == 'uplink'")

    assert [EdgeServers(fed).of(k) for k in fed.devices()] == [0, 0, 1, 1]
    assert dict(zip(uploads["sender"], uploads["cell"], strict=True)) == {0: 0, 1: 0, 2: 1, 3: 1}


# ---- settings --------------------------------------------------------------------------------------------------------


def test_no_other_algorithm_takes_a_backhaul() -> None:
    """It would never be used; the message says what to do."""
    [(path, what)] = small_scenario("network.edge_servers={}").contradictions()

    assert path == ("network", "edge_servers")
    assert "the algorithm fedavg has no edge servers" in what
    assert what.endswith("leave it out, or choose hier-favg")
    assert list(small_scenario("network.edge_servers={}", hier()).contradictions()) == []


def test_without_a_backhaul_it_takes_the_ideal_one() -> None:
    """`edge_servers: null`, `edge_servers: {}` and a backhaul without limits have one event log."""
    digests = {
        run_small(hier(), *given, timing_only=True).ledger.event_digest()
        for given in (
            (),
            ("network.edge_servers={}",),
            ("network.edge_servers={backhaul: {rate_bps: null, delay_s: 0}}",),
        )
    }

    assert len(digests) == 1


def test_weights_are_samples_or_alike() -> None:
    """Two devices with 20 and 60 samples, one at each edge server: 1/4 and 3/4 of the updates, or a half each."""

    def model(weighting: str) -> tuple[Any, Federation]:
        return trained(
            *THREE_STATIONS,
            "devices.count=2",
            "devices.placement={kind: list, xy_m: [[-50, 0], [50, 0]]}",
            "data.n_samples=80",
            "partition={kind: quantity-skew, beta: 0.5, min_samples: 5}",
            "algorithm={kind: hier-favg, cohort: 2, lr: 0.1, batch_size: null, local_steps: 1}",
            f"algorithm.weighting={weighting}",
            "algorithm.edge_rounds=1",
            "stop.rounds=1",
        )

    by_samples, fed = model("samples")
    alike = model("uniform")[0]
    data, initial = fed.task.data, fed.task.model.initial().double()
    moves = []
    for k in range(2):
        rows = fed.task.slice_of(k)
        x = torch.cat([data.x[rows].double(), torch.ones(len(data.x[rows]), 1, dtype=torch.float64)], 1)
        moves.append(-0.1 * 2 / len(x) * x.T @ (x @ initial - data.y[rows].double()))
    share = np.asarray(fed.task.n_samples) / fed.task.n_samples.sum()

    assert share[0] != pytest.approx(0.5, abs=0.05)
    torch.testing.assert_close(
        by_samples.double(), initial + share[0] * moves[0] + share[1] * moves[1], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(alike.double(), initial + (moves[0] + moves[1]) / 2, rtol=0, atol=1e-6)

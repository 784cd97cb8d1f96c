"""Claims about compressed links: what arrives, how many bits it takes, and what each end remembers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from fednet_emu.compression import COMPRESSIONS
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.records.laws.verify import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, resumed_every_round, settings_of

UP, DOWN = "network.uplink.compression=", "network.downlink.compression="
LOSSY = "network.uplink.loss={kind: random, probability: 0.4}"
SCHEMES = {
    "qsgd": "{kind: qsgd, levels: 3}",
    "elias": "{kind: qsgd, levels: 1, coding: elias}",
    "top-k": "{kind: top-k, share: 0.3}",
    "sign": "sign",
    "chain": "{kind: chain, stages: [{kind: top-k, share: 0.5}, {kind: qsgd, levels: 7}]}",
}


def compressed(kind: str) -> set[str]:
    """The links on which an algorithm sends models that can be compressed."""
    return {link for link in ("uplink", "downlink") if f"{link}-compression" in ALGORITHMS[kind].uses}


def finals(*settings: str) -> tuple[Federation, torch.Tensor]:
    """The federation after a run, and its final models as rows."""
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    return fed, torch.stack([fed.read(w) for w in ([final] if isinstance(final, Deferred) else final)])


def gradient(fed: Federation, w: torch.Tensor, k: int) -> torch.Tensor:
    """The gradient of the mean squared error of a linear model [10] on a device's samples, by hand."""
    rows, data = fed.task.slice_of(k), fed.task.data
    x = torch.cat([data.x[rows], torch.ones(len(data.x[rows]), 1)], 1)
    point = w.clone().requires_grad_()
    loss = torch.nn.functional.mse_loss(x @ point, data.y[rows].reshape(-1))
    (found,) = torch.autograd.grad(loss, point)
    return found


@pytest.mark.parametrize("scheme", ["top-k", "sign", "qsgd", "chain"])
def test_a_run_is_the_hand_written_loop(scheme: str) -> None:
    """FedAvg with both links compressed, eight rounds: the loop by hand has the same model to 1e-5."""
    fed, [found] = finals("stop.rounds=8", UP + SCHEMES[scheme], DOWN + SCHEMES["sign"])
    chosen = small_scenario(UP + SCHEMES[scheme]).network.uplink.compression
    streams, w, n = Streams(0), fed.task.model.initial(), len(found)
    known, left, server_left = w, [torch.zeros(n)] * 4, torch.zeros(n)
    for t in range(8):
        if t:  # signs of the update of the server's model, with the server's memory
            p = w - known + server_left
            size = p.abs().mean()
            delta = torch.where(p >= 0, size, -size)
            known, server_left = known + delta, p - delta
        total = torch.zeros(n)
        for k in range(4):
            p = -0.1 * gradient(fed, known, k) + left[k]
            if scheme == "top-k":
                read = p * (p.abs() >= p.abs().sort().values[-3])
            elif scheme == "sign":
                read = torch.where(p >= 0, p.abs().mean(), -p.abs().mean())
            else:
                read = chosen.compress(p, streams("compression", k, 0, t)).read / (
                    1 + min(5 / 49, 5**0.5 / 7) if scheme == "chain" else 1
                )
            left[k] = left[k] if scheme == "qsgd" else p - read
            total += read / 4
        w = known + total

    assert (w - found).norm() <= 1e-5 * (found - fed.task.model.initial()).norm()
    assert (found - fed.task.model.initial()).norm() > 0.05


def test_bits_are_those_of_the_scheme() -> None:
    """Ten parameters: the first model goes whole, then signs; uploads are three entries of 32 + 4 bits, and headers."""
    fed = run_small(UP + SCHEMES["top-k"], DOWN + "sign", "network.overhead={kind: header, header_bit: 8}")
    sizes = fed.ledger.frames()["transfers"].groupby("kind")["size_bit"].apply(list)

    assert sizes["uplink"] == [3 * 36 + 8] * 12
    assert sizes["downlink"] == [320 + 8, 10 + 32 + 8, 10 + 32 + 8]


def test_a_message_sent_again_is_the_same() -> None:
    """A device compresses once: the draws and the memory of a second attempt are those of the first."""
    seen: list[Any] = []

    def server(fed: Federation) -> Process:
        w = fed.initial_model()
        x = fed.defer(torch.add, w, 1.0)
        for loss in (True, False, False):
            transfer = fed.uplink(fed.device(0), x, since=w)
            if loss:
                yield fed.sleep(1e-6)
                transfer.cancel(Delivery.given_up(fed.now_s))
            else:
                yield transfer
            seen.append((transfer.lost or transfer.cancelled, transfer.content))

    fed = small_federation(UP + "{kind: random-k, share: 0.3, error_feedback: true}")
    fed.run(type("Own", (), {"run": staticmethod(server)}))
    (first, lost), (second, again), (_, new) = seen

    assert (first, second) == ("deadline", "")
    assert again is lost
    assert new is not again
    assert torch.equal(fed.read(again), fed.read(lost))
    assert not torch.equal(fed.read(new), fed.read(again))


def test_what_was_left_out_survives_a_loss() -> None:
    """A device is told of no loss: its memory goes on from what it compressed, and what was lost is lost."""
    fed, [w] = finals(UP + "{kind: top-k, share: 0.3}", "stop.rounds=1", "algorithm.cohort=1", LOSSY, "seed=2")
    sender = fed.ledger.frames()["transfers"].query("kind == 'uplink'").iloc[0]
    left = fed.links._uploads._compressor._left[int(sender["sender"]), 0]
    initial = fed.task.model.initial()
    p = -0.1 * gradient(fed, initial, int(sender["sender"]))

    assert sender["lost"] == "erased"
    assert torch.equal(w, initial)
    assert torch.allclose(fed.read(left), p * (p.abs() < p.abs().sort().values[-3]), atol=1e-6)


def test_who_missed_a_model_is_sent_it_whole() -> None:
    """Three devices get the update; one that was away in the second round gets the third model whole."""
    away = "devices.availability={kind: windows, devices: {3: [[0, 0.00232], [0.0039, 1000]]}}"
    fed = run_small(DOWN + "sign", away, "stop.rounds=4")
    frames = fed.ledger.frames()
    sizes = frames["transfers"].query("kind == 'downlink'").groupby("requested_s")["size_bit"].apply(sorted).tolist()

    assert frames["rounds"]["invited"].tolist()[:3] == [4, 3, 4]
    assert sizes == [[320], [42], [42, 320], [42]]


@pytest.mark.parametrize("condition", ["ideal", pytest.param("30 % loss", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sorted(kind for kind in ALGORITHM_SETTINGS if compressed(kind)))
def test_every_algorithm_that_says_so_sends_fewer_bits(kind: str, condition: str) -> None:
    """Fewer on the links that it names; serial, batched and no training have the same events; every law holds."""
    way = {"uplink": UP, "downlink": DOWN}
    settings = settings_of(kind, condition)
    small = [way[link] + SCHEMES["chain" if link == "uplink" else "sign"] for link in sorted(compressed(kind))]
    plain, (fed, w) = run_small(*settings, timing_only=True), finals(*settings, *small)
    batched, w_batched = finals(*settings, *small, "training.engine=batched")
    timed = run_small(*settings, *small, timing_only=True)

    runs = plain.ledger.transfers, fed.ledger.transfers
    if condition == "ideal":
        for code, link in enumerate(("uplink", "downlink")):
            sizes = [run.column("size_bit")[run.column("kind") == code] for run in runs]
            least = [min(size[size > 32]) for size in sizes]  # a number alone is no model
            assert (least[1] < least[0]) == (link in compressed(kind))
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert fed.ledger.event_digest() == batched.ledger.event_digest()
    assert torch.allclose(w, w_batched, atol=1e-4)
    assert small_scenario(*settings).events_depend_on_learning or (
        timed.ledger.event_digest() == fed.ledger.event_digest()
    )


@pytest.mark.parametrize("kind", sorted(set(ALGORITHM_SETTINGS)))
def test_an_algorithm_that_sends_no_update_refuses(kind: str) -> None:
    """It says so before the run, for each link; one that does send updates has nothing to say."""
    for link in ("uplink", "downlink"):
        scenario = small_scenario(*ALGORITHM_SETTINGS[kind], f"network.{link}.compression=qsgd")
        found = [f"{'.'.join(path)}: {what}" for path, what in scenario.contradictions() if "compress" in what]
        refused = f"network.{link}.compression: the algorithm {kind} has nothing to compress on the {link}, no upd"

        assert [text.startswith(refused) for text in found] == ([] if link in compressed(kind) else [True])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_goes_on_from_a_checkpoint_file(scheme: str) -> None:
    """Cut after each round and resumed: every table is the same, and so is the model, memories of devices included."""
    settings = settings_of("fedavg", "30 % loss", UP + SCHEMES[scheme], DOWN + "sign", "evaluation.every_rounds=2")
    whole, expected = finals(*settings)
    last, final = resumed_every_round(whole.round, *settings)

    for name, frame in last.ledger.frames().items():
        pd.testing.assert_frame_equal(frame, whole.ledger.frames()[name], check_exact=True)
    assert torch.equal(last.read(final), expected[0])


def test_elias_codes_are_counted_and_bounded() -> None:
    """Each message takes what its values need; without training it takes the bound, and the scenario says so."""
    settings = (UP + "{kind: qsgd, levels: 1, coding: elias}", "stop.rounds=6")
    full, timed = run_small(*settings), run_small(*settings, timing_only=True)
    bits = full.ledger.frames()["transfers"].query("kind == 'uplink'")["size_bit"]

    assert small_scenario(*settings).events_depend_on_learning
    assert not small_scenario().events_depend_on_learning
    assert bits.nunique() > 1
    assert bits.max() <= 1 + 32 + 10 * 2
    assert set(timed.ledger.frames()["transfers"].query("kind == 'uplink'")["size_bit"]) == {1 + 32 + 10 * 2}
    assert timed.learner.nominal


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_the_cost_counts_bits(kind: str) -> None:
    """A model's upload, as the run then sends it."""
    fed = run_small(UP + kind, "data.features=19")
    uploads = fed.ledger.frames()["transfers"].query("kind == 'uplink'")["size_bit"]

    assert set(uploads) == {Outlook(small_scenario(UP + kind, "data.features=19")).cost.upload_bit}


def test_none_is_as_if_there_were_no_setting() -> None:
    """With `none` nothing is made or remembered, and the events are the same."""
    plain, none = run_small(), run_small(UP + "none", DOWN + "none")

    assert none.ledger.event_digest() == plain.ledger.event_digest()
    assert none.graph._created == plain.graph._created
    assert none.links._uploads is None
    assert none.links._publications is None


def test_sidelinks_refuse_it() -> None:
    """Messages from device to device go whole."""
    with pytest.raises(
        ScenarioError, match=r"sidelink\.compression: is for uplink and downlink, got sign; leave it out"
    ):
        small_scenario("network.sidelink={channel: {include: ideal}, compression: sign}")


def test_since_has_an_entry_for_each_part() -> None:
    """A payload of two parts with one model for them is a mistake in the algorithm, and says so."""

    def server(fed: Federation) -> Process:
        w = fed.initial_model()
        yield fed.uplink(fed.device(0), (w, 3), since=w)

    fed = small_federation(UP + "sign")
    with pytest.raises(ValueError, match="since: not one for each part, got 1 for 2; give None for the rest"):
        fed.run(type("Own", (), {"run": staticmethod(server)}))

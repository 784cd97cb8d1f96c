"""Claims about cyclic participation: its mathematics on problems with known answers, and its turns in time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.algorithms.cyclic.algorithm import CyclicFedAvg, members
from fednet_emu.emulation.build import build
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from fednet_emu.learning.models.base import Model
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.cyclic.lemma import remainder

M, K, FEATURES, SAMPLES = 16, 4, 3, 15
STRUCTURES = {
    1: {"kind": "scenario-1", "groups": K},
    2: {"kind": "scenario-2", "groups": K},
    3: {"kind": "scenario-3", "groups": K},
    4: {"kind": "scenario-4", "groups": K},
}
TURNS = {1: K, 2: K, 3: K + 1, 4: K + 1}


def min_squares():
    """Samples in double precision of sixteen devices, each with an optimum of its own: x [M, n, 3], y [M, n]."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(M, SAMPLES, FEATURES))
    own = rng.normal(size=FEATURES) + 0.5 * rng.normal(size=(M, FEATURES))
    return x, np.einsum("mnf,mf->mn", x, own) + 0.1 * rng.normal(size=(M, SAMPLES))


class OwnSamples(Dataset):
    """The samples above, each with the device that it belongs to."""

    def load(self, data_dir, rng):
        x, y = (torch.tensor(values.reshape(M * SAMPLES, -1)) for values in min_squares())
        owner = np.repeat(np.arange(M), SAMPLES)
        return Samples(x, y[:, 0], x, y[:, 0], None, train_group=owner, test_group=owner)


class FromPoint(Model):
    """A linear regression in double precision that starts from a given point."""

    start: tuple[float, ...]

    def build(self, input_shape, outputs):
        layer = nn.Linear(FEATURES, 1).double()
        with torch.no_grad():
            layer.weight[:], layer.bias[:] = torch.tensor(self.start[:-1], dtype=torch.float64), self.start[-1]
        return layer


def one_cycle(algorithm, turns, w):
    """The model after one cycle from w, played in the emulator in double precision, and who sat where."""
    settings = (f"devices.count={M}", "partition=group", f"stop.rounds={turns}", "evaluation.every_rounds=100")
    parts = {"data": OwnSamples(), "model": FromPoint(start=tuple(w))}
    fed = build(small_scenario(*settings).model_copy(update=parts))
    final = fed.run(algorithm)
    assert final is not None
    return fed.read(final).numpy(), fed.ledger.frame("cyclic_groups")


def optimum():
    """The minimiser of the mean over devices of each one's mean squared error; all have equally many samples."""
    x, y = min_squares()
    design = np.concatenate([x.reshape(-1, FEATURES), np.ones((M * SAMPLES, 1))], axis=1)
    return np.linalg.lstsq(design, y.reshape(-1), rcond=None)[0]


def fixed_point(scenario, **settings):
    """Where cycles end: a cycle of gradient steps on least squares is an affine map, which P + 1 cycles give away."""
    algorithm = CyclicFedAvg(structure=STRUCTURES[scenario], lr=1e-5, **settings)
    at_zero, _ = one_cycle(algorithm, TURNS[scenario], np.zeros(FEATURES + 1))
    columns = [one_cycle(algorithm, TURNS[scenario], unit)[0] - at_zero for unit in np.eye(FEATURES + 1)]
    return np.linalg.solve(np.eye(FEATURES + 1) - np.stack(columns, axis=1), at_zero)


def distance(scenario, **settings):
    return np.linalg.norm(fixed_point(scenario, **settings) - optimum())


@pytest.mark.parametrize("scenario", STRUCTURES)
def test_split_sums_end_at_the_optimum(scenario):
    """With split samples and sums, scaled or not, every scenario ends within 1e-3 of the optimum."""
    assert distance(scenario, agg="sum") < 1e-3
    assert distance(scenario, agg="const") < 1e-3


@pytest.mark.parametrize("scenario", [1, 3])
def test_a_constant_factor_is_groups_over_devices(scenario):
    """The first group moves the model by its sum times K / M; with groups of M / K devices that is their mean."""
    w = np.array([0.3, -0.2, 0.5, 0.1])
    moved = {}
    for agg in ("sum", "const", "mean"):
        algorithm = CyclicFedAvg(structure=STRUCTURES[scenario], lr=0.01, agg=agg)
        after, seats = one_cycle(algorithm, 1, w)
        moved[agg] = after - w

    assert moved["const"] == pytest.approx(moved["sum"] * TURNS[scenario] / M, rel=1e-12)
    assert moved["mean"] == pytest.approx(moved["sum"] / (seats["group"] == 0).sum(), rel=1e-12)
    if scenario == 1:
        assert moved["const"] == pytest.approx(moved["mean"], rel=1e-12)


@pytest.mark.parametrize("scenario", [2, 3, 4])
def test_no_split_over_weights_who_sits_in_several_groups(scenario):
    """Without the split the same sums end at least 30 times further away; the factor 1 / c alone mends that."""
    split = distance(scenario, agg="sum")

    assert distance(scenario, agg="sum", data="no-split") > 30 * split
    assert distance(scenario, agg="sum", data="no-split-reweighted") < 1e-3


def test_a_mean_is_biased_by_unequal_groups_only():
    """Split and mean end 10 times further away than sums in scenario 2, whose groups are unequal, and only there."""
    ratios = {scenario: distance(scenario, agg="mean") / distance(scenario, agg="sum") for scenario in STRUCTURES}

    assert ratios[2] > 10
    assert all(ratios[scenario] < 10 for scenario in (1, 3, 4))


@pytest.mark.parametrize("scenario", STRUCTURES)
def test_the_lemma_is_an_identity(scenario):
    """A cycle of sums moves the model by -eta M grad F + eta^2 r, to 1e-10, with parts read from the run's records."""
    lr, w = 0.01, np.array([0.3, -0.2, 0.5, 0.1])
    after, seats = one_cycle(CyclicFedAvg(structure=STRUCTURES[scenario], lr=lr, agg="sum"), TURNS[scenario], w)
    x, y = min_squares()
    design = np.concatenate([x, np.ones((M, SAMPLES, 1))], axis=2)
    fed = small_federation(f"devices.count={M}")
    split = {
        m: iter(np.array_split(fed.streams("split", m).permutation(SAMPLES), count))
        for m, count in seats["device"].value_counts().items()
    }
    curvatures, gradients = [], []
    for _, group in seats.groupby("group"):
        rows = {m: next(split[m]) for m in group["device"]}
        assert [len(part) for part in rows.values()] == group["samples"].tolist()
        pieces = [(design[m, part], y[m, part]) for m, part in rows.items()]
        curvatures.append(sum(2 * a.T @ a / SAMPLES for a, _ in pieces))
        gradients.append(sum(2 * a.T @ (a @ w - b) / SAMPLES for a, b in pieces))
    whole = sum(2 * design[m].T @ (design[m] @ w - y[m]) / SAMPLES for m in range(M))
    r = remainder(curvatures, gradients, lr)

    np.testing.assert_allclose(sum(gradients), whole, atol=1e-10)
    np.testing.assert_allclose(after - w, -lr * whole + lr**2 * r, atol=1e-10)
    assert np.linalg.norm(lr**2 * r) > 1e-4


CYCLIC = "algorithm={{kind: cyclic-fedavg, lr: 0.1, structure: {{kind: {}, groups: 2}}, {}}}"


def test_a_cycle_in_time():
    """Broadcast 320 us, 720 us per device at work on 20 samples, uploads of 320 us in turn; a half takes 360 us.

    The first group is devices 0 and 1: device 0 has half of its samples there, is ready after 680 us and through at
    1000 us, device 1 is ready at 1040 us and through at 1360 us. The second group is 0, 2 and 3: 2 and 3 are ready at
    1040 us, 40 us after device 0 is through again, and through at 1360 and 1680 us.
    """
    fed = run_small(CYCLIC.format("scenario-2", ""), "stop.rounds=2")
    turns, transfers = fed.ledger.frame("cyclic_turns"), fed.ledger.frame("transfers")
    ups = transfers[transfers["direction"] == "uplink"]

    assert (turns["ended_s"] - turns["started_s"]).tolist() == pytest.approx([1360e-6, 1680e-6])
    assert ups["sender"].tolist() == [0, 1, 0, 2, 3]
    assert ups["started_s"].tolist() == pytest.approx([680e-6, 1040e-6, 2040e-6, 2400e-6, 2720e-6])


def test_a_slot_loses_what_is_late_and_lasts_when_all_are_early():
    """A slot of 1.2 ms ends on time without device 1, whose upload would end at 1.36 ms; one of 5 ms waits."""
    tight = run_small(CYCLIC.format("scenario-2", "slot_s: 0.0012"), "stop.rounds=1").ledger.frames()
    loose = run_small(CYCLIC.format("scenario-2", "slot_s: 0.005"), "stop.rounds=2").ledger.frames()

    assert tight["rounds"][["ended_s", "invited", "arrived"]].values.tolist() == [[0.0012, 2, 1]]
    assert tight["transfers"]["loss_reason"].tolist() == ["", "", "deadline"]
    assert loose["rounds"][["ended_s", "invited", "arrived"]].values.tolist() == [[0.005, 2, 2], [0.01, 3, 3]]


def test_a_lost_reply_is_left_out_of_the_mean():
    """The mean is over what has arrived: a group that hears from one device takes over that device's model."""
    algorithm = CyclicFedAvg(structure={"kind": "list", "groups": [[1, 0]]}, lr=0.1, slot_s=0.0014)
    fed = small_federation("stop.rounds=1")
    alone = small_federation("stop.rounds=1")

    with_one = fed.run(algorithm)
    only_first = alone.run(CyclicFedAvg(structure={"kind": "list", "groups": [[0]]}, lr=0.1))
    assert with_one is not None
    assert only_first is not None

    assert fed.ledger.rounds.column("arrived").tolist() == [1]
    assert torch.equal(fed.read(with_one), alone.read(only_first))


def test_several_local_steps_count_by_their_movement():
    """With a factor of 1 / 2 a device ends half-way to where its local steps lead from the same samples."""
    half = CyclicFedAvg(
        structure={"kind": "list", "groups": [[0], [0]]}, lr=0.1, local_steps=3, data="no-split-reweighted"
    )
    whole = CyclicFedAvg(structure={"kind": "list", "groups": [[0]]}, lr=0.1, local_steps=3)
    fed, other = small_federation("stop.rounds=1"), small_federation("stop.rounds=1")
    short, far = fed.run(half), other.run(whole)
    assert short is not None
    assert far is not None
    w = fed.task.model.initial()

    torch.testing.assert_close(fed.read(short) - w, (other.read(far) - w) / 2)


def test_groups_are_formed_anew():
    """Random groups change after `reform_cycles` cycles and not before."""
    fed = run_small(
        "algorithm={kind: cyclic-fedavg, lr: 0.1, structure: {kind: random, groups: 4}, reform_cycles: 2}",
        "devices.count=16",
        "stop.rounds=24",
    )
    seats, turns = fed.ledger.frame("cyclic_groups"), fed.ledger.frame("cyclic_turns")
    formed = {cycle: rows.sort_values("device")["group"].tolist() for cycle, rows in seats.groupby("cycle")}

    assert list(formed) == [0, 2, 4]
    assert formed[0] != formed[2] != formed[4]
    assert turns["cycle"].tolist() == np.repeat(range(6), 4).tolist()
    assert turns["group"].tolist() == [0, 1, 2, 3] * 6


@pytest.mark.parametrize(
    ("data", "factors"), [("split", [1]), ("no-split", [1, 1, 1]), ("no-split-reweighted", [1 / 3] * 3)]
)
def test_a_lone_sample_sits_in_every_group_unless_it_is_split(data, factors):
    """A device with one sample and three seats uses it in all of them; split, there is only one part to use."""
    fed = small_federation("devices.count=10", "data.n_samples=10")
    algorithm = CyclicFedAvg(lr=0.1, data=data, structure={"kind": "list", "groups": [[0, 1], [0], [0]]})
    groups = members(fed, algorithm.structure.form(fed, 0), data)

    assert [member.factor for group in groups for member in group if member.device == 0] == factors


def test_one_measure_of_local_work():
    """Steps and epochs together are refused, and so are bounds of what the theory does not cover."""
    with pytest.raises(ValueError, match="at most one of local_steps and local_epochs, got 2 and 1"):
        CyclicFedAvg(structure=STRUCTURES[1], lr=0.1, local_steps=2, local_epochs=1)
    with pytest.raises(ValueError, match=r"bounds hold for one full-batch step .* got batch_size=4"):
        CyclicFedAvg(structure=STRUCTURES[1], lr=0.1, batch_size=4, bounds=True)
    for timing_only in (False, True):
        with pytest.raises(ScenarioError, match=r"groups of one size only, got sizes \[2, 3\]"):
            run_small(CYCLIC.format("scenario-2", "bounds: true, l2: 0.1"), timing_only=timing_only)


@pytest.mark.parametrize(("work", "steps"), [({}, 1), ({"local_steps": 3}, 3), ({"local_epochs": 2}, 10)])
def test_local_work_takes_its_time(work, steps):
    """20 samples in batches of 4: a step of 144 FLOP at 1 MFLOP/s takes 144 us, an epoch five of them."""
    fed = small_federation("stop.rounds=1")
    fed.run(CyclicFedAvg(structure={"kind": "list", "groups": [[0, 1]]}, lr=0.1, batch_size=4, **work))
    computes = fed.ledger.frame("computes")

    assert (computes["ended_s"] - computes["started_s"]).tolist() == pytest.approx([steps * 144e-6] * 2)

"""An environment: its checkers, errors, ends, seeds, and the process around it."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import warnings
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import fednet_emu as fe
from fednet_emu.environment import Curve, Environment, Step, play, scaled
from fednet_emu.environment.actions import Actions
from fednet_emu.environment.observation import LIMIT, SERVER
from fednet_emu.errors import Deadlock, FednetError, ScenarioError
from fednet_emu.testing import small_scenario
from tests.environment.scenes import FADING, PLANNED, SCENES, SPEEDS, losses, normal, scene

FOUR = (SPEEDS, "algorithm.cohort=2", "stop.rounds=4")
GRANTS = ("share", "power", "clock")
NEVER_BACK = "devices.battery={capacity_j: 1e-4}"


def small(*settings: str, **how) -> Environment:
    """Two of four devices, four rounds, without training unless `timing_only` says so."""
    return Environment(small_scenario(*FOUR, *settings), **{"timing_only": True, **how})


def planned(planner: str = "least-time", **how) -> Environment:
    return Environment(scene(PLANNED[0], PLANNED[1].replace("PLANNER", planner)), **{"timing_only": True, **how})


# ---- checkers --------------------------------------------------------------------------------------------------------


ACTS = ["scores", "invite", "subset", GRANTS, ("invite", *GRANTS), ("scores", "deadline", "steps")]


@pytest.mark.parametrize("act", ACTS, ids=str)
def test_gymnasium_finds_nothing_wrong(act) -> None:
    """Its checker, with warnings as errors but for the width of the boxes."""
    env = planned(act=act, observe=("server", "energy_j", "bits"), deadline_range_s=(0.1, 10.0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|normaliz|symmetric|not within the obs).*")
        check_env(env, skip_render_check=True)


def test_stable_baselines_finds_nothing_wrong() -> None:
    """Its checker, where it is installed."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    for act in ("scores", "invite", "subset"):
        checker.check_env(small(act=act), warn=True)


def test_the_id_is_registered_by_its_module() -> None:
    """`gymnasium.make` imports the package and passes its arguments on; truncation is its own."""
    name = "fednet_emu.environment:fednet_emu/Rounds-v0"
    env = gymnasium.make(name, scenario=small_scenario(*FOUR), timing_only=True, max_episode_steps=2)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    *_, terminated, truncated, info = env.step(env.action_space.sample())
    assert (terminated, truncated, info["step"].round) == (False, True, 2)
    env.close()


def test_without_gymnasium_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is there, and says what to install."""
    import fednet_emu.environment as package

    monkeypatch.setattr(package, "find_spec", lambda _name: None)
    with pytest.raises(FednetError, match=r"Environment: needs Gymnasium.*pip install 'fednet-emu\[gymnasium\]'"):
        fe.Environment  # noqa: B018


# ---- observations ----------------------------------------------------------------------------------------------------


def test_the_first_observation_by_hand() -> None:
    """320 bit at 1 Mbit/s, 720 FLOP at 1, 1/2, 1/3 and 1/4 MFLOP/s; nobody was asked before."""
    env = small()
    seen, info = env.reset(seed=1)

    assert seen["compute_s"] * 1e3 == pytest.approx([0.72, 1.44, 2.16, 2.88])
    assert seen["upload_s"].tolist() == seen["download_s"].tolist() == pytest.approx([0.32e-3] * 4)
    assert seen["duration_known"].tolist() == [0, 0, 0, 0]
    assert (seen["round"][0], seen["now_s"][0], seen["budget_left"][0]) == (0, 0, 1)
    assert seen.keys() == {"action_mask", *SERVER}
    assert info["question"].known is env.view


def test_the_second_observation_by_hand() -> None:
    """Devices 0 and 2 took 0.32 + 0.72 + 0.32 ms and 0.32 + 2.16 + 0.32 ms, the round as long as the slower one."""
    env = small()
    env.reset(seed=1)
    seen, reward, over, cut, info = env.step([1.0, -1.0, 0.5, 0.0])

    assert seen["duration_s"] * 1e3 == pytest.approx([1.36, 0, 2.80, 0], abs=1e-5)
    assert seen["duration_known"].tolist() == seen["invited"].tolist() == seen["arrived"].tolist() == [1, 0, 1, 0]
    assert seen["age"].tolist() == seen["since_invited"].tolist() == [1, 2, 1, 2]
    assert reward == pytest.approx(-2.80e-3)
    assert seen["now_s"][0] == pytest.approx(2.80e-3)
    assert seen["budget_left"][0] == 0.75
    assert (over, cut, info["step"].invited, info["step"].arrived, info["step"].bits) == (False, False, 2, 2, 960)


@pytest.mark.parametrize("timing_only", [True, False])
def test_the_last_observation_is_that_of_the_end(timing_only: bool) -> None:
    """After the last step, time, round and counts are those at the end of the run."""
    env = small(timing_only=timing_only, observe=("server",) if timing_only else ("server", "reported_loss"))
    env.reset(seed=1)
    ended = False
    while not ended:
        action = env.action_space.sample()
        seen, _, ended, _, info = env.step(action)
    invited = env.run().rounds["invited"].sum()
    assert seen["now_s"][0] == pytest.approx(info["step"].ended_s)
    assert seen["round"][0] == info["step"].round == 4
    assert seen["invited"].sum() == invited == 8
    assert seen["arrived"].sum() == env.run().rounds["arrived"].sum()


def test_an_observation_is_never_nan_and_never_infinite() -> None:
    """Not with devices that are away, losses and empty batteries."""
    for settings in SCENES.values():
        env = Environment(scene(*settings), act="invite", observe=("server", "energy_j", "bits"), timing_only=True)
        env.action_space.seed(0)
        seen, _ = env.reset(seed=0)
        over = False
        while not over:
            assert env.observation_space.contains(seen)
            seen, _, over, _, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(seen)


def test_reported_losses_cost_bits_and_arrive_late() -> None:
    """32 bit more for each upload; what a device reports is seen in the round after."""
    plain, asked = small(timing_only=False), small(timing_only=False, observe=("server", "reported_loss"))
    bits = []
    for env in (plain, asked):
        env.reset(seed=0)
        seen, *_, info = env.step([1, 1, 0, 0])
        bits.append(info["step"].bits)
    assert bits[1] - bits[0] == 2 * 32
    assert (seen["reported_loss"] > 0).tolist() == [True, True, False, False]


def test_scaled_observations_use_constants() -> None:
    """The same constants whatever the seed; near 1, and 10 for what is infinite."""
    env = scaled(Environment(scene(FADING), timing_only=True))
    first, _ = env.reset(seed=0)
    again, _ = env.reset(seed=5)

    assert first["compute_s"] / again["compute_s"] == pytest.approx(
        (first["flop_per_s"] / again["flop_per_s"]) ** -1.0, rel=1e-5
    )
    assert 0.2 < float((again["compute_s"] + again["upload_s"] + again["download_s"]).mean()) < 5
    assert all(np.abs(values).max() <= LIMIT for values in again.values())
    assert env.observation_space.contains(again)


# ---- actions ---------------------------------------------------------------------------------------------------------


BAD = [
    ("scores", [1, 2, 3], r"action: must be 4 numbers, got int64 \(3,\); see action_space"),
    ("scores", "a", r"action: must be 4 numbers, got <U1 \(\); see action_space"),
    ("scores", [1, math.nan, 3, 4], "action: an entry is invalid, got nan; give numbers"),
    ("invite", [1, 0, 1], r"action: must be 4 numbers, got int64 \(3,\); see action_space"),
    ("invite", [2, 0, 0, 1], "action: an entry is invalid, got 2; give 0 or 1"),
    ("subset", 6, "action: is no choice, got 6; must be from 0 to 5"),
    ("subset", -1, "action: is no choice, got -1; must be from 0 to 5"),
    ("subset", 1.5, "action: is no choice, got 1.5; must be from 0 to 5"),
    (("scores", "steps"), {"scores": [1, 2, 3, 4]}, "has not the keys of the acts, got scores; give scores, steps"),
    (("scores", "steps"), {"scores": [1, 2, 3, 4], "steps": [math.nan] * 4}, "action.steps: an entry is invalid"),
]


@pytest.mark.parametrize(("act", "action", "sentence"), BAD)
def test_a_bad_action_changes_nothing(act, action, sentence: str) -> None:
    """It is refused before the run has gone on; the episode ends as if it had not been tried."""
    env, other = small(act=act), small(act=act)
    for each in (env, other):
        each.reset(seed=2)
        each.action_space.seed(0)
    with pytest.raises(FednetError, match=sentence):
        env.step(action)
    ends = []
    for each in (env, other):
        over = False
        while not over:
            *_, over, _, info = each.step(each.action_space.sample())
        ends.append(info["event_digest"])
    assert ends[0] == ends[1]


def test_nobody_wins_by_inviting_nobody() -> None:
    """An empty invitation asks one device, drawn from the round's stream, and says so."""
    env = small(act="invite")
    env.reset(seed=0)
    _, reward, *_, info = env.step(np.zeros(4, np.int8))

    assert (info["filled"], info["step"].filled, info["step"].invited) == (True, True, 1)
    assert reward <= -1.36e-3
    again = small(act="invite")
    again.reset(seed=0)
    assert again.step(np.zeros(4, np.int8))[1] == reward


def until_away(act: str, **how) -> tuple[Environment, list[int]]:
    """An environment at a decision at which some devices are away, and their numbers."""
    env = Environment(scene(SCENES["coming and going"][0]), act=act, timing_only=True, **how)
    for seed in range(20):
        seen, _ = env.reset(seed=seed)
        away = np.flatnonzero(seen["action_mask"] == 0).tolist()
        if away and len(away) < 7:
            return env, away
    raise AssertionError("no seed has devices away")


def test_absent_devices_are_dropped_and_counted() -> None:
    """All eight are invited; only those of the mask take part."""
    env, away = until_away("invite")
    *_, info = env.step(np.ones(8, np.int8))
    assert (info["dropped"], info["step"].invited) == (len(away), 8 - len(away))


def test_a_subset_of_the_few_present_is_legal() -> None:
    """Where fewer are present than a cohort has, one subset at least invites all of them."""
    acts = Actions(("subset",), True, 4, 2, strict=True)
    view = SimpleNamespace(there=np.array([1]))
    legal = []
    for number in range(6):
        with suppress(FednetError):
            legal.append(acts.read(number, view).invited)
    assert legal == [[1], [1], [1]]


def test_seeds_are_those_of_a_run() -> None:
    """A seed that no run takes is refused."""
    with pytest.raises(FednetError, match="seed: must be a whole number from 0 to 9223372036854775807, got 1844"):
        small().reset(seed=2**64)


def test_strict_environments_name_who_is_away() -> None:
    """With `invalid="error"` the action is refused, and so is one that invites nobody."""
    env, away = until_away("invite", invalid="error")
    with pytest.raises(FednetError, match=rf"action: invites \[{away[0]}.*, absent or without samples; take"):
        env.step(np.ones(8, np.int8))
    with pytest.raises(FednetError, match="action: invites no device; invite at least one"):
        env.step(np.zeros(8, np.int8))
    env.step(1 - np.isin(np.arange(8), away))


def test_shares_are_scaled_down_together_and_powers_have_a_floor() -> None:
    """Shares of 1 for three devices are a third each; a power of 0 is one part in a billion."""
    env = planned(act=("scores", *GRANTS))
    env.reset(seed=0)
    ones, zeros = np.ones(8), np.zeros(8)
    env.step({"scores": np.arange(8.0), "share": ones, "power": zeros, "clock": ones})
    plan = env.fed.ledger.series["plan"]

    assert [row["device"] for row in plan] == [5, 6, 7]
    assert [row["share"] for row in plan] == pytest.approx([1 / 3] * 3)
    assert {row["power_part"] for row in plan} == {1e-9}


def test_an_act_that_is_left_out_is_the_planners() -> None:
    """Only powers are acted on: the shares are those of the normal run."""
    env = planned(act=("power",))
    env.reset(seed=4)
    env.step({"power": np.full(8, 0.5)})
    plan, usual = env.fed.ledger.series["plan"], normal(env.scenario, 4).ledger.series["plan"]
    first = [row for row in usual if row["round"] == 1]

    assert [row["device"] for row in plan] == [row["device"] for row in first]
    assert [row["share"] for row in plan] == [row["share"] for row in first]
    assert {row["power_part"] for row in plan} == {0.5}


def one_step(action: object, *settings: str, **how) -> tuple[Environment, Step]:
    """The first step of an environment of four devices that are all asked."""
    env = small("algorithm.cohort=4", *settings, **how)
    env.reset(seed=0)
    return env, env.step(action)[-1]["step"]


def test_a_deadline_by_hand() -> None:
    """Half way between 1 and 4 ms on a log scale is 2 ms: devices 0 and 1 come after 1.36 and 2.08 ms."""
    env, step = one_step({"deadline": [0.5]}, act=("deadline",), deadline_range_s=(1e-3, 4e-3))
    assert (step.duration_s, step.invited, step.arrived) == (2e-3, 4, 1)
    assert env.scenario.algorithm.deadline_s is None


@pytest.mark.parametrize("timing_only", [True, False])
def test_shares_of_the_local_steps_by_hand(timing_only: bool) -> None:
    """Of four steps of 0.72 ms: all, three, two, and for a share of 0 one; devices 1 and 2 are ready at 4.64 ms."""
    how = {"act": ("steps",), "timing_only": timing_only}
    env, step = one_step({"steps": [1.0, 0.6, 0.5, 0.0]}, "algorithm.local_steps=4", **how)
    made = dict(zip(*(env.fed.ledger.computes.column(name) for name in ("device", "flop")), strict=True))

    assert made == {0: 4 * 720, 1: 3 * 720, 2: 2 * 720, 3: 720}
    assert step.duration_s == pytest.approx(0.32e-3 + 3 * 1.44e-3 + 2 * 0.32e-3)
    assert env.view.work.compute_s * 1e3 == pytest.approx([2.88, 5.76, 8.64, 11.52])


def test_plans_follow_the_local_steps() -> None:
    """A planner that knows of half the steps grants other parts of the band."""
    access = "network.uplink.access={kind: planned, planner: {kind: least-energy, round_s: 0.14}}"
    energy = "devices.compute_energy={kind: cmos, clock_hz: 1e9, flop_per_cycle: 1}"
    clocks = []
    for share in (1.0, 0.5):
        how = {"act": ("steps",)}
        env, _ = one_step({"steps": [share] * 4}, PLANNED[0], access, energy, "algorithm.local_steps=40", **how)
        clocks.append([row["clock_part"] for row in env.fed.ledger.series["plan"]])
    assert all(fewer < more for fewer, more in zip(clocks[1], clocks[0], strict=True))


def test_shares_of_the_entries_by_hand() -> None:
    """Top-k of 10 parameters: 36 bit for each entry that is kept; at least one is."""
    how = {"act": ("ratio",), "timing_only": False}
    env, step = one_step({"ratio": [1.0, 0.5, 0.2, 0.0]}, "network.uplink.compression=top-k", **how)
    sizes = env.fed.ledger.transfers.column("size_bit")

    assert sorted(sizes.tolist()) == [36, 72, 180, 320, 360]
    assert step.bits == 320 + (10 + 5 + 2 + 1) * 36


def test_a_proxy_gives_the_accuracy_of_so_many_updates() -> None:
    """The curve of a run with training, read at 2, 4, ... updates; every info says that it is one."""
    run = fe.run("quickstart", settings={"stop.rounds": 3, "algorithm.cohort": 2}, progress=False)
    curve = Curve.of(run)
    settings = {"stop.rounds": 3, "algorithm.cohort": 2}
    env = Environment("quickstart", settings=settings, reward="gain", timing_only=True, proxy=curve)
    _, info = env.reset(seed=0)
    rewards = []
    for _ in range(3):
        _, reward, *_, info = env.step(np.arange(20.0))
        rewards.append(reward)

    assert info["proxy"]
    assert curve.updates == (0, 2, 4, 6)
    assert curve(3) == pytest.approx((curve.accuracy[1] + curve.accuracy[2]) / 2)
    assert rewards == pytest.approx(np.diff(run.evaluations["accuracy"]).tolist())


def test_without_an_act_for_it_the_mask_says_whom_the_rule_has_chosen() -> None:
    """The agent that divides the band sees for whom."""
    env = planned(act=("share",))
    seen, _ = env.reset(seed=4)
    env.step({"share": np.ones(8)})
    assert np.flatnonzero(seen["action_mask"]).tolist() == [row["device"] for row in env.fed.ledger.series["plan"]]


# ---- construction ----------------------------------------------------------------------------------------------------


def test_all_problems_come_at_once() -> None:
    """Four in one error: two acts, a key and a reward."""
    with pytest.raises(ScenarioError) as refusal:
        small(act=("scores", "share", "ratio"), observe="x", reward="y")
    assert len(refusal.value.problems) == 4


# ---- ends and life ---------------------------------------------------------------------------------------------------


def to_the_end(env: Environment, action=None) -> dict:
    over = False
    while not over:
        *_, over, _, info = env.step(env.action_space.sample() if action is None else action)
    return info


def test_the_end_says_why_and_whether_the_records_are_consistent() -> None:
    """Four rounds, then `stop`; the digest is the run's."""
    env = small()
    env.reset(seed=0)
    info = to_the_end(env)

    assert (info["ended"], info["verified"], info["step"].round, info["question"]) == ("stop", True, 4, None)
    run = env.run()
    assert (run.digest, run.status, run.seed, len(run.rounds)) == (info["event_digest"], "done", 0, 4)
    assert run.verdict == "all records consistent"


def test_the_results_are_those_of_a_run_with_the_same_decisions() -> None:
    """Every entry of the summary of `fe.run`, but the time on the host; the model, too."""
    scenario = small_scenario(*FOUR, "algorithm.selection=round-robin")
    env = Environment(scenario)
    played = play(env, seed=0)
    run, usual = env.run(), fe.run(scenario, seed=0, progress=False)

    own = {key: value for key, value in run.summary.items() if not key.startswith("host_")}
    assert own == {key: value for key, value in usual.summary.items() if key in own}
    assert played.info["energy_j"] == usual.energy_j
    assert {*usual.summary} - {*run.summary} <= {"elsewhere"}
    assert run.evaluations.equals(usual.evaluations)
    both = (its.model.state_dict().values() for its in (run, usual))
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


def test_a_deadlock_is_an_end() -> None:
    """Batteries that nothing charges run out; nobody returns, and the episode is over without an error."""
    env = Environment(
        small_scenario(*FOUR[:2], "stop.rounds=1000", "channel=urban-micro", NEVER_BACK), act="invite", timing_only=True
    )
    env.reset(seed=0)
    info = to_the_end(env, np.ones(4, np.int8))

    assert info["ended"] == info["step"].ended == "deadlock"
    assert info["verified"]
    assert env.run().status == "failed"


def test_a_divergence_is_an_end() -> None:
    """A step size of a million: the loss is not finite any more."""
    env = small("algorithm.lr=1e30", "stop.rounds=20", timing_only=False, observe=("server", "loss"))
    env.reset(seed=0)
    info = to_the_end(env)

    assert info["ended"] == "diverged"
    assert env.run().status == "diverged"


def test_a_deadlock_before_the_first_decision_is_an_error() -> None:
    """No action has caused it."""
    with pytest.raises(Deadlock):
        Environment(scene(f"devices.availability={{kind: windows, devices: { {k: [] for k in range(8)} }}}")).reset()


def test_calls_out_of_order() -> None:
    """Before a reset, after the end, and after close, each says what to do."""
    env = small()
    with pytest.raises(ResetNeeded, match="environment: no episode runs in this process, got step; call reset"):
        env.step([0, 0, 0, 0])
    with pytest.raises(FednetError, match="environment: no episode has ended, got run; play one to its end"):
        env.run()
    env.reset(seed=0)
    to_the_end(env)
    with pytest.raises(ResetNeeded):
        env.step([0, 0, 0, 0])
    env.close()
    env.close()
    for call in (env.reset, lambda: env.step([0, 0, 0, 0])):
        with pytest.raises(FednetError, match=r"environment: is closed, got (reset|step); make another one"):
            call()


def test_a_copy_begins_anew() -> None:
    """A pickle and a deep copy are environments before their first reset, with the same spaces."""
    env = small(reward={"time": 2.0})
    env.reset(seed=7)
    env.step([1, 1, 0, 0])
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        with pytest.raises(ResetNeeded):
            other.step([1, 1, 0, 0])
        other.reset(seed=7)
        assert other.step([1, 1, 0, 0])[1] == pytest.approx(2 * -2.08e-3)
    env.step([1, 1, 0, 0])


def test_the_question_stays_here() -> None:
    """A pickle of an info has None in its place."""
    env = small()
    _, info = env.reset(seed=0)
    assert pickle.loads(pickle.dumps(info))["question"] is None
    assert copy.deepcopy(info)["question"] is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_to_reset() -> None:
    """Its first step raises; the parent goes on."""
    env = small()
    env.reset(seed=0)
    child = os.fork()
    if child == 0:
        try:
            env.step([1, 1, 0, 0])
        except ResetNeeded:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    env.step([1, 1, 0, 0])


def test_an_error_closes_the_run_and_reset_works() -> None:
    """An interrupt in the middle of a step passes; the next call is reset."""
    env = small()
    env.reset(seed=0)

    def interrupted(_fed) -> None:
        raise KeyboardInterrupt

    env.fed.observers.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.step([1, 1, 0, 0])
    with pytest.raises(ResetNeeded):
        env.step([1, 1, 0, 0])
    env.reset(seed=0)
    assert env.step([1, 1, 0, 0])[1] == pytest.approx(-2.08e-3)


def test_a_reset_in_the_middle_ends_the_run_first() -> None:
    """Transfers that are under way are accounted for as lost by the end."""
    env = small()
    env.reset(seed=0)
    fed = env.fed
    env.step([1, 1, 0, 0])
    env.reset(seed=0)
    assert len(fed.ledger.energies)
    assert env.fed is not fed


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_seeds_without_a_number() -> None:
    """The first episode has the scenario's seed; later ones are drawn from `np_random`."""
    first, second = Environment(scene(FADING)), Environment(scene(FADING))
    seeds = [[env.reset(seed=5 if n == 1 else None)[1]["seed"] for n in range(4)] for env in (first, second)]
    assert seeds[0] == seeds[1]
    assert seeds[0][:2] == [0, 5]
    assert len(set(seeds[0])) == 4


@pytest.mark.parametrize("vary", ["all", "chance", "nothing"])
def test_what_a_seed_varies(vary: str) -> None:
    """All: speeds, places, data. Chance: fading, but not the scene. Nothing: the same run again."""
    changes = {"partition": {"kind": "dirichlet", "alpha": 1.0}}
    env = Environment("quickstart", settings=changes, vary=vary, observe=("server", "loss"))
    firsts, rewards = [], []
    for seed in (1, 2):
        firsts.append(env.reset(seed=seed)[0])
        rewards.append([env.step(np.arange(20.0))[1] for _ in range(2)])
    same = {
        key: np.array_equal(firsts[0][key], firsts[1][key]) for key in ("n_samples", "flop_per_s", "rate_bps", "loss")
    }
    assert set(same.values()) == {vary != "all"}
    assert (rewards[0] == rewards[1]) == (vary == "nothing")


def test_a_chance_episode_is_a_run_with_a_scene_seed() -> None:
    """Events and losses are those of a normal run with this seed and that scene."""
    env = Environment(scene(FADING), vary="chance")
    env.reset(seed=9)
    for seed in (9, 9, 9):
        played = play(env, seed=seed)
    usual = normal(env.scenario.model_copy(update={"scene_seed": 0}), 9, timing_only=False)

    assert played.info["event_digest"] == usual.ledger.event_digest()
    assert losses(env.fed.ledger.evaluations) == losses(usual.ledger.evaluations)


# ---- rewards ---------------------------------------------------------------------------------------------------------


def test_named_rewards_and_sums_of_them() -> None:
    """Each is a function of the step, which is in the info."""
    env = small(reward={"time": 1.0, "energy": 0.5, "arrived": 2.0})
    env.reset(seed=0)
    _, reward, *_, info = env.step([1, 1, 0, 0])
    step: Step = info["step"]
    assert reward == pytest.approx(-step.duration_s - 0.5 * step.energy_j + 2.0 * 2)


def test_energies_and_bits_of_steps_add_up_to_those_of_the_run() -> None:
    """So do invitations and arrivals; the devices' part is that of the table of energies."""
    for settings in (SCENES["losses and deadline"], SCENES["batteries"], SCENES["moving"]):
        env = Environment(
            scene(*settings, "devices.compute_energy={kind: cmos, clock_hz: 1e9, flop_per_cycle: 1}"), timing_only=True
        )
        env.reset(seed=1)
        steps, over = [], False
        while not over:
            *_, over, _, info = env.step(np.arange(8.0))
            steps.append(info["step"])
        run = env.run()
        own = run.energies.iloc[:-1][["computing_j", "sending_j", "receiving_j", "idle_j"]].to_numpy().sum()

        assert sum(its.energy_j for its in steps) == pytest.approx(run.energy_j)
        assert sum(its.device_j for its in steps) == pytest.approx(own)
        assert sum(its.bits for its in steps) == run.uplink_bit + run.downlink_bit
        assert sum(its.arrived for its in steps) == run.rounds["arrived"].sum()
        assert sum(sum(its.lost_transfers.values()) for its in steps) == sum(run.losses.values())


def test_gains_add_up_to_the_accuracy() -> None:
    """From the initial model to the last one."""
    env = Environment("quickstart", settings={"stop.rounds": 4}, reward="gain", vary="chance")
    env.reset(seed=0)
    start, rewards, over = env.now["accuracy"], [], False
    while not over:
        _, reward, over, _, info = env.step(np.arange(20.0))
        rewards.append(reward)
    assert start + sum(rewards) == pytest.approx(env.run().accuracy)
    assert info["step"].accuracy == env.run().accuracy


def test_the_forms_of_towards_and_within() -> None:
    """64^(a - target) - 1, and minus 2 per J over the limit."""
    from fednet_emu.environment import towards, within

    env = small()
    env.reset(seed=0)
    step: Step = env.step([1, 1, 0, 0])[-1]["step"]
    assert towards(0.9)(replace(step, accuracy=0.9)) == 0
    assert towards(0.5)(replace(step, accuracy=1.0)) == pytest.approx(64**0.5 - 1)
    assert within(1.0, each=2.0)(replace(step, energy_j=1.5)) == -1.0
    assert within(1.0)(replace(step, energy_j=0.5)) == 0


# ---- the process -----------------------------------------------------------------------------------------------------


def settings_of_the_process() -> tuple:
    return torch.get_num_threads(), gc.get_threshold(), list(warnings.filters), torch.is_grad_enabled()


def test_the_process_is_as_before_between_two_calls() -> None:
    """Threads of torch, the collector, warnings, gradients; a step works where the caller has turned these off."""
    env = small(timing_only=False)
    before = settings_of_the_process()
    env.reset(seed=0)
    assert settings_of_the_process() == before
    with torch.no_grad(), torch.inference_mode():
        inside = settings_of_the_process()
        _, _, _, _, info = env.step([1, 1, 0, 0])
        assert settings_of_the_process() == inside
    assert math.isfinite(info["step"].loss)
    assert settings_of_the_process() == before


@pytest.mark.parametrize("resets", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_abandoned_episodes_leave_no_object_behind(resets: int) -> None:
    """As many objects after 40 as after many more resets, each with a step."""
    env = small(vary="chance")

    def objects(resets: int) -> int:
        for _ in range(resets):
            env.reset()
            env.step([1, 1, 0, 0])
        gc.collect()
        return len(gc.get_objects())

    objects(20)
    first = objects(20)
    assert objects(resets) - first <= 20

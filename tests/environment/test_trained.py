"""A trained agent as a selection rule: its run is the agent's own episode; what cannot be exported is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.environment import Environment, Trained, export, scaled
from fednet_emu.environment.observation import MASK, best
from fednet_emu.errors import DataError, FednetError, ScenarioError
from fednet_emu.testing import small_scenario
from tests.environment.scenes import FADING, SCENES, losses, normal, scene


def layers(env, width: int = 16) -> nn.Sequential:
    """Random layers from the observation space of an environment to scores."""
    size = sum(int(np.prod(its.shape)) for its in env.observation_space.values())
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(size, width), nn.Tanh(), nn.Linear(width, env.unwrapped.acts.n))


def own_episode(env, agent: nn.Sequential, seed: int) -> str:
    seen, _ = env.reset(seed=seed)
    over = False
    while not over:
        vector = torch.cat([torch.as_tensor(seen[key], dtype=torch.float32) for key in env.observation_space])
        with torch.no_grad():
            action = agent(vector[None])[0].clamp(-1, 1).numpy()
        seen, _, over, _, info = env.step(action)
    return info["event_digest"]


@pytest.mark.parametrize(("name", "timing_only"), [("still", True), ("coming and going", True), ("moving", False)])
def test_the_run_of_an_exported_agent_is_its_own_episode(tmp_path, name: str, timing_only: bool) -> None:
    """Digest for digest, and with training loss for loss; by a scenario that names the file."""
    env = scaled(Environment(scene(*SCENES[name]), timing_only=timing_only))
    agent = layers(env)
    rule = export(agent, env, tmp_path / "agent.safetensors")
    digest, seen = own_episode(env, agent, 4), losses(env.unwrapped.fed.ledger.evaluations)

    settings = f"algorithm.selection={{kind: '{Trained.kind}', file: {tmp_path}/agent.safetensors}}"
    scenario = scene(*SCENES[name], settings)
    fed = normal(scenario, 4, timing_only=timing_only)

    assert scenario.algorithm.selection == rule
    assert fed.ledger.event_digest() == digest
    assert losses(fed.ledger.evaluations) == seen


def test_a_model_of_stable_baselines_is_exported(tmp_path) -> None:
    """Where it is installed: the run of the file has the digest of the model's own deterministic episode."""
    ppo = pytest.importorskip("stable_baselines3").PPO
    env = scaled(Environment(scene(*SCENES["moving"]), timing_only=True))
    model = ppo("MultiInputPolicy", env, seed=3, device="cpu", n_steps=64, batch_size=64)
    rule = export(model, env, tmp_path / "agent")
    seen, _ = env.reset(seed=5)
    over = False
    while not over:
        seen, _, over, _, info = env.step(model.predict(seen, deterministic=True)[0])

    own = scene(*SCENES["moving"], f"algorithm.selection={{kind: '{Trained.kind}', file: {rule.file}}}")
    assert normal(own, 5).ledger.event_digest() == info["event_digest"]


def test_reported_losses_go_with_the_agent(tmp_path) -> None:
    """An agent that reads losses has them sent in a normal run, too: 32 bit with each upload."""
    env = scaled(Environment(scene(FADING), observe=("server", "reported_loss")))
    agent = layers(env)
    rule = export(agent, env, tmp_path / "agent")
    scenario = scene(FADING)
    own = scenario.model_copy(update={"algorithm": scenario.algorithm.model_copy(update={"selection": rule})})

    assert rule.reports == ("loss",)
    assert rule.single_uploads
    assert normal(own, 2, timing_only=False).ledger.event_digest() == own_episode(env, agent, 2)


@pytest.mark.usefixtures("cells_here")
def test_a_study_compares_it_by_its_digest(tmp_path) -> None:
    """As an axis of a sweep beside another rule; the run's scenario has the digest."""
    env = scaled(Environment(small_scenario("algorithm.cohort=2"), timing_only=True))
    rule = export(layers(env), env, tmp_path / "agent")
    axis = [{"kind": Trained.kind, "file": rule.file}, "fedcs"]
    how = {"seeds": 2, "timing_only": True, "workers": 1, "progress": False}
    study = fe.sweep(small_scenario("algorithm.cohort=2"), grid={"algorithm.selection": axis}, **how)
    found = [study[row].settings["algorithm"]["selection"] for row in range(len(study))]

    assert len(found) == 4
    assert {its["digest"] for its in found if its["kind"] == Trained.kind} == {rule.digest}
    assert not study.failures


def test_a_file_with_another_digest_is_refused(tmp_path) -> None:
    """So is one that is missing, is no agent, or is of another number of devices."""
    env = Environment(scene(), timing_only=True)
    rule = export(layers(env), env, tmp_path / "agent")
    assert Trained(file=rule.file) == rule
    with pytest.raises(Exception, match="the file holds another agent, got"):
        Trained(file=rule.file, digest="0" * 32)
    with pytest.raises(ScenarioError, match=r"cannot read the file of the agent \(No such file"):
        scene(f"algorithm.selection={{kind: '{Trained.kind}', file: nowhere}}")
    (tmp_path / "text").write_text("text")
    with pytest.raises(DataError, match=r"is no trained agent .*; write it by"):
        Trained(file=str(tmp_path / "text")).reports  # noqa: B018
    own = small_scenario(f"algorithm.selection={{kind: '{Trained.kind}', file: {rule.file}}}")
    with pytest.raises(ScenarioError, match="was trained for 8 devices, got 4; train it for as many"):
        normal(own, 0)


REFUSED = [
    ({"act": "invite"}, {}, "acts on more or else than scores, got invite"),
    ({"observe": ("server", "energy_j")}, {}, "observes what no server can see, got energy_j"),
    ({}, {"norm_obs": True}, "reads running statistics of observations, got VecNormalize; use scaled"),
    ({}, {"use_sde": True}, "has a head that is drawn or squashed"),
]


@pytest.mark.parametrize(("how", "policy", "sentence"), REFUSED)
def test_what_no_server_can_follow_is_not_exported(tmp_path, how: dict, policy: dict, sentence: str) -> None:
    """Each with its reason; no file is written."""
    env = Environment(scene(), timing_only=True, **how)
    [first, tanh, last] = layers(env)
    own = SimpleNamespace(
        mlp_extractor=SimpleNamespace(policy_net=nn.Sequential(first, tanh)),
        action_net=last,
        features_extractor=SimpleNamespace(extractors=dict.fromkeys(env.observation_space)),
        use_sde=policy.get("use_sde", False),
    )
    normalised = SimpleNamespace(norm_obs=True) if policy.get("norm_obs") else None
    model = SimpleNamespace(policy=own, get_vec_normalize_env=lambda: normalised)
    with pytest.raises(FednetError, match=f"export: the agent {sentence}"):
        export(model, env, tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


def test_layers_that_draw_are_not_exported(tmp_path) -> None:
    """Dropout, and polls of the scenario's rule."""
    env = Environment(scene("algorithm.selection=power-of-choice"), timing_only=True)
    with pytest.raises(FednetError) as refusal:
        export(nn.Sequential(*layers(env), nn.Dropout()), env, tmp_path / "agent")
    assert "has an unsupported layer, got Dropout" in str(refusal.value)
    assert "was trained with polls, got power-of-choice" in str(refusal.value)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (lambda n: nn.Sequential(nn.Linear(n + 1, 8)), "does not map {n} values to 8 scores, got 0"),
        (lambda n: nn.Sequential(nn.Linear(n, 7)), "does not map {n} values to 8 scores, got 7"),
        (lambda n: nn.Sequential(), "does not map {n} values to 8 scores, got 0"),
        (lambda n: nn.Linear(n, 8), "does not map {n} values to 8 scores, got 0"),
    ],
)
def test_a_network_of_another_shape_is_not_exported(tmp_path, network, sentence: str) -> None:
    """One without biases is."""
    env = Environment(scene(), timing_only=True)
    n = sum(its.shape[0] for its in env.observation_space.values())
    with pytest.raises(FednetError, match=f"export: the agent {sentence.format(n=n)}; give an nn.Sequential"):
        export(network(n), env, tmp_path / "agent")
    rule = export(nn.Sequential(nn.Linear(n, 8, bias=False)), env, tmp_path / "agent")
    env.reset(seed=0)
    assert len(rule.choose(env.view)) == 3


def test_equal_scores_go_by_number() -> None:
    """And absent devices are never chosen."""
    env = Environment(scene(), timing_only=True)
    seen, _ = env.reset(seed=0)
    assert best(np.ones(8), env.view) == [0, 1, 2]
    assert seen[MASK].all()

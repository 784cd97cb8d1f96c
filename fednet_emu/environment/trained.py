"""A trained agent as a selection rule: a file of its layers, and the rule that reads it. It needs no agent library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from pydantic import model_validator
from torch import nn

from fednet_emu.algorithms.selection.base import Selection, ServerView
from fednet_emu.environment.observation import MASK, ORACLE, REPORTED, best, divided, observed
from fednet_emu.errors import DataError, FednetError, ScenarioError
from fednet_emu.federation import Statistic
from fednet_emu.files.writing import file_errors

if TYPE_CHECKING:
    from fednet_emu.environment.environment import Environment

_ABOUT = "fednet_emu"  # entry of the file's metadata with the description of the agent
_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "": nn.Identity}


class Agent(NamedTuple):
    """Layers from a vector of keys, divided by `scales` if given, to the scores of `devices` devices."""

    layers: nn.Sequential
    keys: tuple[str, ...]
    scales: Mapping[str, float]
    devices: int
    reports: tuple[Statistic, ...]

    def scores(self, view: ServerView) -> Any:
        """Scores [devices]."""
        seen = observed(view, [key for key in self.keys if key != MASK])
        scaled = divided(seen, self.scales) if self.scales else seen
        with torch.no_grad():
            vector = torch.cat([torch.as_tensor(scaled[key], dtype=torch.float32) for key in self.keys])
            return self.layers(vector[None])[0].clamp(-1.0, 1.0).numpy()


class Trained(Selection):
    """The devices with the highest scores of an agent that `export` has written; ties by number.

    The scores depend on the server's knowledge only. Runs name the agent by the digest of its file.
    """

    kind = "fednet_emu.environment.trained:Trained"

    file: str
    """The file of the agent, a path."""
    digest: str
    """Digest of the file, by default computed; a file with another digest is refused."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_file(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("file"), str):
            return given
        try:
            found = digest_of(given["file"])
        except OSError as error:
            raise ValueError(f"cannot read the file of the agent ({error.strerror}), got {given['file']}") from None
        wanted = given.get("digest", found)
        if wanted != found:
            raise ValueError(f"digest: the file holds another agent, got {found}; {wanted} is wanted")
        return {**given, "digest": found}

    @cached_property
    def agent(self) -> Agent:
        """The agent of the file."""
        return loaded(self.file, self.digest)

    @property
    def reports(self) -> tuple[Statistic, ...]:  # type: ignore[override]
        """The metrics with which the agent was trained."""
        return self.agent.reports

    @property
    def single_uploads(self) -> str:  # type: ignore[override]
        """The reason, if the agent reads metrics of devices."""
        return "reads what single devices report" if self.reports else ""

    def choose(self, view: ServerView) -> Sequence[int]:
        """The cohort with the highest scores."""
        if len(view.asked) != self.agent.devices:
            what = f"was trained for {self.agent.devices} devices, got {len(view.asked)}"
            raise ScenarioError(f"algorithm.selection.file: {what}; train it for as many, or set devices.count")
        return best(self.agent.scores(view), view)


def digest_of(file: str | Path) -> str:
    """The digest of a file, 32 hexadecimal digits."""
    return blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()


@lru_cache(maxsize=8)
def loaded(file: str, digest: str) -> Agent:
    """The agent of a file with this digest; a `DataError` if it is none."""
    try:
        with safetensors.safe_open(file, "pt") as opened:
            about = json.loads(opened.metadata()[_ABOUT])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (no mapping)
        layers: list[nn.Module] = []
        for place, name in enumerate(about["activations"]):
            weight, bias = tensors[f"weight.{place}"], tensors[f"bias.{place}"]
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data, linear.bias.data = weight, bias
            layers += [linear, _ACTIVATIONS[name]()]
        keys, reports = tuple(about["keys"]), tuple(about["reports"])
        return Agent(nn.Sequential(*layers).eval(), keys, about["scales"], about["devices"], reports)
    except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise DataError(file, f"is no trained agent ({error})", "write it by fednet_emu.environment.export") from None


def export(model: Any, env: Any, path: str | Path) -> Trained:
    """Write a trained agent into a file, and return the selection rule that reads it.

    Args:
        model: a model of Stable-Baselines3 with a `MultiInputPolicy`, or layers `nn.Sequential` of linear layers, tanh
            and ReLU from the vector of all keys, in the order of the observation space, to the scores.
        env: the environment in which it was trained, scaled or not.
        path: the file.

    Raises:
        FednetError: the agent reads oracle keys or running statistics, draws at random, or has other layers.
    """
    inner: Environment = env.unwrapped
    policy = getattr(model, "policy", None)
    layers = list(model) if policy is None else [*policy.mlp_extractor.policy_net, policy.action_net]
    keys = tuple(inner.observation_space) if policy is None else tuple(policy.features_extractor.extractors)
    problems, linear, activations = [*_refusals(inner, model, policy)], list[nn.Linear](), list[str]()
    names = {its: name for name, its in _ACTIVATIONS.items()}
    for layer in layers:
        if isinstance(layer, nn.Linear):
            linear.append(layer)
            activations.append("")
        elif type(layer) in names and activations:
            activations[-1] = names[type(layer)]
        else:
            problems.append(f"has a layer {type(layer).__name__}, got it; use linear layers, tanh and ReLU")
    if problems:
        raise FednetError("\n".join(f"export: the agent {problem}" for problem in problems))
    reports = dict.fromkeys((*inner.rule.reports, *(REPORTED[key] for key in keys if key in REPORTED)))
    about = {"keys": keys, "scales": _scales(env), "activations": activations, "devices": inner.acts.n}
    tensors = {f"weight.{place}": its.weight.detach().cpu().contiguous() for place, its in enumerate(linear)}
    tensors |= {f"bias.{place}": its.bias.detach().cpu().contiguous() for place, its in enumerate(linear)}
    whole = safetensors.torch.save(tensors, {_ABOUT: json.dumps({**about, "reports": list(reports)})})
    with file_errors(Path(path), "written to"):
        Path(path).write_bytes(whole)
    return Trained(file=str(path), digest=digest_of(path))


def _refusals(inner: Environment, model: Any, policy: Any) -> Iterator[str]:
    """Errors of agents that no server can follow."""
    if inner.acts.acts != ("scores",):
        yield f"acts on more or else than scores, got {', '.join(inner.acts.acts)}; train it with act='scores'"
    hidden = [key for key in inner.keys if key in ORACLE]
    if hidden:
        yield f"observes what no server can see, got {', '.join(hidden)}; leave it out of observe"
    if inner.rule.polls:
        yield f"was trained with polls, got {inner.rule.kind}; choose another algorithm.selection"
    normalised = getattr(model, "get_vec_normalize_env", lambda: None)()
    if normalised is not None and normalised.norm_obs:
        yield "reads running statistics of observations, got VecNormalize; use scaled(env), or norm_obs=False"
    if policy is not None and (getattr(policy, "use_sde", False) or getattr(policy, "squash_output", False)):
        yield "has a head that is drawn or squashed, got use_sde or squash_output; leave these out"


def _scales(env: Any) -> Mapping[str, float]:
    """The divisors of the observations of an environment, below all its wrappers."""
    while env is not env.unwrapped:
        if hasattr(env, "constants"):
            found: Mapping[str, float] = env.constants
            return found
        env = env.env
    return {}

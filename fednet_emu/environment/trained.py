"""Trained agents as selection rules: files with the layers of an agent, and a rule that needs only PyTorch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from fednet_emu.algorithms.selection.base import Selection, ServerView
from fednet_emu.environment.observation import MASK, ORACLE, REPORTED, best, divided, observed
from fednet_emu.errors import DataError, FednetError, ScenarioError
from fednet_emu.federation import Statistic
from fednet_emu.files.writing import file_errors

_ABOUT = "fednet_emu"  # key under which the metadata of the file describes the agent
_LAYERS: dict[str, Callable[..., Tensor]] = {"Linear": functional.linear, "Tanh": torch.tanh, "ReLU": torch.relu}


class Trained(Selection):
    """Selection rule that invites the devices to which a trained agent gives the highest scores.

    `export` writes the file of the agent. The scores depend only on the server's knowledge; ties go to the lower index.
    """

    kind = "fednet_emu.environment.trained:Trained"

    file: str
    """Path of the file with the agent."""
    digest: str
    """Digest of the file, computed by default; an error is raised if the file has another digest."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_file(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("file"), str):
            return given
        try:
            found = blake2b(Path(given["file"]).read_bytes(), digest_size=16).hexdigest()
        except OSError as error:
            raise ValueError(f"cannot read the file of the agent ({error.strerror}), got {given['file']}") from None
        if (wanted := given.get("digest", found)) != found:
            raise ValueError(f"digest: the file holds another agent, got {found}; {wanted} is wanted")
        return {**given, "digest": found}

    @cached_property
    def agent(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Description and weights of the agent; raises `DataError` if the file contains no agent."""
        try:
            with safetensors.safe_open(self.file, "pt") as opened:
                about, names = json.loads(opened.metadata()[_ABOUT]), opened.keys()
                return about, {name: opened.get_tensor(name) for name in names}
        except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
            what, remedy = f"is no trained agent ({error})", "write it by fednet_emu.environment.export"
            raise DataError(self.file, what, remedy) from None

    @property
    def reports(self) -> tuple[Statistic, ...]:  # type: ignore[override]
        return tuple(self.agent[0]["reports"])

    @property
    def single_uploads(self) -> str:  # type: ignore[override]
        return "reads what single devices report" if self.reports else ""

    def choose(self, view: ServerView) -> Sequence[int]:
        about, weights = self.agent
        if len(view.invited) != about["devices"]:
            what = f"was trained for {about['devices']} devices, got {len(view.invited)}"
            raise ScenarioError(f"algorithm.selection.file: {what}; train it for as many, or set devices.count")
        seen = observed(view, [key for key in about["keys"] if key != MASK])
        if about["scales"]:
            seen = divided(seen, about["scales"])
        with torch.no_grad():
            x = torch.cat([torch.as_tensor(seen[key], dtype=torch.float32) for key in about["keys"]])[None]
            for place, name in enumerate(about["layers"]):
                own = (weights[f"{place}.weight"], weights.get(f"{place}.bias")) if name == "Linear" else ()
                x = _LAYERS[name](x, *own)
        return best(x[0].clamp(-1.0, 1.0).numpy(), view)


def export(model: Any, env: Any, path: str | Path) -> Trained:
    """Write a trained agent to a file, and return the selection rule that reads the file.

    Args:
        model: a model of Stable-Baselines3 with a `MultiInputPolicy`; or an `nn.Sequential` of linear layers, tanh and
            ReLU, which maps one vector to the scores. The vector has the values of all keys in the order of the
            observation space.
        env: the environment in which the agent was trained, either unwrapped or wrapped by `scaled`.
        path: the path of the file.

    Raises:
        FednetError: the agent reads oracle keys or running statistics, or has random outputs or unsupported layers; or
            an argument has another type.
    """
    inner: Any = getattr(env, "unwrapped", None)
    policy = getattr(model, "policy", None)
    if not hasattr(inner, "acts"):  # importing the class would need Gymnasium
        raise FednetError(f"export: env is no environment of fednet_emu, got {env!r:.60}; give an Environment")
    if policy is None and not isinstance(model, nn.Module):
        what = "is neither a model of Stable-Baselines3 nor an nn.Sequential"
        raise FednetError(f"export: the agent {what}, got {model!r:.60}; give one of these")
    layers = list(model.children()) if policy is None else [*policy.mlp_extractor.policy_net, policy.action_net]
    keys = tuple(inner.observation_space) if policy is None else tuple(policy.features_extractor.extractors)
    names = [type(layer).__name__ for layer in layers]
    network = deepcopy(nn.Sequential(*layers)).cpu()
    if problems := list(_refusals(inner, model, policy, network)):
        raise FednetError("\n".join(f"export: the agent {problem}" for problem in problems))
    about = {
        "layers": names,
        "keys": keys,
        "scales": env.get_wrapper_attr("constants") if env.has_wrapper_attr("constants") else {},
        "devices": inner.acts.n,
        "reports": list(dict.fromkeys((*inner.rule.reports, *(REPORTED[key] for key in keys if key in REPORTED)))),
    }
    weights = {name: its.contiguous() for name, its in network.state_dict().items()}
    with file_errors(Path(path), "written to"):
        Path(path).write_bytes(safetensors.torch.save(weights, {_ABOUT: json.dumps(about)}))
    return Trained.model_validate({"file": str(path)})


def _refusals(inner: Any, model: Any, policy: Any, network: nn.Sequential) -> Iterator[str]:
    for name in (name for name in (type(layer).__name__ for layer in network) if name not in _LAYERS):
        yield f"has an unsupported layer, got {name}; use linear layers, tanh and ReLU"
    size, scores = sum(math.prod(space.shape) for space in inner.observation_space.values()), 0
    with suppress(RuntimeError):
        scores = network(torch.zeros(1, size)).shape[-1] if len(network) else 0
    if scores != inner.acts.n:
        yield f"does not map {size} values to {inner.acts.n} scores, got {scores}; give an nn.Sequential that does"
    if inner.acts.acts != ("scores",):
        yield f"acts on more or else than scores, got {', '.join(inner.acts.acts)}; train it with act='scores'"
    if hidden := [key for key in inner.keys if key in ORACLE]:
        yield f"observes what no server can see, got {', '.join(hidden)}; leave it out of observe"
    if inner.rule.polls:
        yield f"was trained with polls, got {inner.rule.kind}; choose another algorithm.selection"
    normalised = getattr(model, "get_vec_normalize_env", lambda: None)()
    if normalised is not None and normalised.norm_obs:
        yield "reads running statistics of observations, got VecNormalize; use scaled(env), or norm_obs=False"
    if policy is not None and (getattr(policy, "use_sde", False) or getattr(policy, "squash_output", False)):
        yield "has a head that is drawn or squashed, got use_sde or squash_output; leave these out"

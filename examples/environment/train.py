"""Train PPO to select devices, without training models; write the learning curves and the agent of the first seed.

pip install -r examples/environment/requirements.txt
python examples/environment/train.py pairs                       # two of four devices: the optimum is known
python examples/environment/train.py quickstart --steps 12288

OUT/SCENE.csv contains the mean return of deterministic episodes whose seeds were not used in training. For comparison,
it also contains the returns of a random draw, FedCS, Oort, and the best possible policy if it is known.

The settings of PPO differ from the defaults of Stable-Baselines3 in four points. A reward is divided by the running
standard deviation of the returns, because policy and value have one common limit of the gradient norm. The initial
standard deviation of a score is exp(-1): with 1, a third of the scores is cut off at the bounds, and ties are broken by
the device number. A discount of 0.9 corresponds to ten rounds: a cohort has little effect on the times of later rounds.
The step size and the number of steps between updates are chosen for episodes of 10 and 60 rounds.
"""

import argparse
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
import pandas as pd
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.environment import Environment, Step, export, play, scaled
from fednet_emu.testing import small_scenario

PAIRS = ("devices.speed={kind: list, flop_per_s: [1e6, 5e5, 333333.3333333333, 250000]}", "algorithm.cohort=2")
OPTIMUM = {"pairs": -20.8}
UNITS = {"pairs": "ms", "quickstart": "s"}
UNSEEN = range(1000, 1005)
GAMMA = 0.9
PPO_SETTINGS = {"n_steps": 256, "learning_rate": 1e-3, "gamma": GAMMA, "policy_kwargs": {"log_std_init": -1.0}}


def environment(scene: str, selection: str = "uniform") -> Environment:
    """Return the environment of a scene; the reward is minus the round duration, in ms (pairs) or s (quickstart)."""
    if scene == "pairs":
        scenario = small_scenario(*PAIRS, "stop.rounds=10", f"algorithm.selection={selection}")
        return Environment(scenario, reward=minus_ms, vary="chance", timing_only=True)
    settings = {"algorithm.selection": selection}
    return Environment("quickstart", settings=settings, reward="time", vary="chance", timing_only=True)


def minus_ms(step: Step) -> float:
    """Return minus the duration of the step in ms."""
    return -1e3 * step.duration_s


def returned(model: PPO, env: Environment) -> float:
    """Return the mean return of deterministic episodes with seeds that were not used in training."""
    own, returns = scaled(env), []
    for seed in UNSEEN:
        seen, _ = own.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            seen, reward, over, *_ = own.step(model.predict(seen, deterministic=True)[0])
            total += reward
        returns.append(total)
    return fmean(returns)


def draw(curves: pd.DataFrame, unit: str, file: Path) -> None:
    """Draw the learning curve of each seed, and a line for each other policy."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for _, own in curves[curves["policy"] == "PPO"].groupby("seed"):
        axes.plot(own["steps"], own["return"], color="C0", alpha=0.6, label="PPO, one seed")
    others = curves[curves["policy"] != "PPO"].groupby("policy", sort=False)["return"].mean()
    for place, (policy, value) in enumerate(others.items(), 1):
        axes.axhline(value, color=f"C{place}", linestyle="--", label=policy)
    axes.set(xlabel="Steps of the environment", ylabel=f"Return of unseen episodes ({unit})")
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))  # one legend entry for PPO
    axes.legend(named.values(), named.keys())
    plt.savefig(file)


def main() -> None:
    """Write the curves of all seeds, and the agent of the first one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", choices=["pairs", "quickstart"])
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/agent"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    rows = [("optimum", 0, 0, OPTIMUM[given.scene])] if given.scene in OPTIMUM else []
    for policy, kind in {"random": "uniform", "FedCS": "fedcs", "Oort": "oort"}.items():
        env = environment(given.scene, kind)
        rows += [(policy, 0, seed, sum(play(env, SELECTIONS[kind](), seed=seed).rewards)) for seed in UNSEEN]
    for seed in range(given.seeds):
        env, test = environment(given.scene), environment(given.scene)
        envs = VecNormalize(DummyVecEnv([lambda env=env: scaled(env)]), norm_obs=False, gamma=GAMMA)
        model = PPO("MultiInputPolicy", envs, seed=seed, device="cpu", **PPO_SETTINGS)
        while True:
            rows.append(("PPO", model.num_timesteps, seed, returned(model, test)))
            print(f"seed {seed}, {model.num_timesteps} steps: {rows[-1][-1]:.2f}", flush=True)
            if model.num_timesteps >= given.steps:
                break
            model.learn(min(1024, given.steps), reset_num_timesteps=False)
        if seed == 0:
            print(export(model, scaled(env), given.out / "agent.safetensors"))
    curves = pd.DataFrame(rows, columns=["policy", "steps", "seed", "return"]).round(2)
    curves.to_csv(given.out / f"{given.scene}.csv", index=False)
    draw(curves, UNITS[given.scene], given.out / f"{given.scene}.png")
    print(curves.groupby(["policy", "steps"], sort=False)["return"].agg(["mean", "min", "max"]).to_string())


if __name__ == "__main__":
    main()

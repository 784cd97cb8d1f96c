"""Train PPO to choose devices without training models, print its learning curve, and export the last agent.

pip install -r examples/environment/requirements.txt
python examples/environment/train.py pairs --steps 4096          # two of four devices: the optimum is known
python examples/environment/train.py quickstart --steps 8192 --out agent.safetensors

Each line of the curve has the mean return of deterministic episodes that were not trained on. Without lines for a
random draw, FedCS, Oort and the best possible policy next to it, a learning curve says nothing.
"""

import argparse
from statistics import fmean

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from fednet_emu.algorithms.selection import SELECTIONS
from fednet_emu.environment import Environment, export, play, scaled
from fednet_emu.testing import small_scenario

PAIRS = ("devices.speed={kind: list, flop_per_s: [1e6, 5e5, 333333.3333333333, 250000]}", "algorithm.cohort=2")
UNSEEN = range(1000, 1005)
PPO_SETTINGS = {"n_steps": 256, "batch_size": 64, "learning_rate": 1e-3, "ent_coef": 0.01, "gamma": 0.99}


def environment(scene: str, selection: str = "uniform") -> Environment:
    """One of the two scenes; the reward is minus the duration of a round, in ms or in s."""
    if scene == "pairs":
        scenario = small_scenario(*PAIRS, "stop.rounds=10", f"algorithm.selection={selection}")
        return Environment(scenario, reward=in_ms, vary="chance", timing_only=True)
    settings = {"algorithm.selection": selection}
    return Environment("quickstart", settings=settings, reward="time", vary="chance", timing_only=True)


def in_ms(step) -> float:
    """Minus the duration in ms."""
    return -1e3 * step.duration_s


def returned(model: PPO, env: Environment) -> float:
    """The mean return of deterministic episodes with seeds that were not trained on."""
    own, returns = scaled(env), []
    for seed in UNSEEN:
        seen, _ = own.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            seen, reward, over, *_ = own.step(model.predict(seen, deterministic=True)[0])
            total += reward
        returns.append(total)
    return fmean(returns)


def main() -> None:
    """Print the lines and the curve of each seed, and write the agent of the last one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", choices=["pairs", "quickstart"])
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", default="")
    given = parser.parse_args()

    for kind in ("uniform", "fedcs", "oort"):
        env = environment(given.scene, kind)
        value = fmean(sum(play(env, SELECTIONS[kind](), seed=seed).rewards) for seed in UNSEEN)
        print(f"{kind:10} {value:10.3f}")
    for seed in range(given.seeds):
        env, test = environment(given.scene), environment(given.scene)
        envs = VecNormalize(DummyVecEnv([lambda env=env: scaled(env)]), norm_obs=False)
        model = PPO("MultiInputPolicy", envs, seed=seed, device="cpu", **PPO_SETTINGS)
        for done in range(0, given.steps, 1024):
            print(f"seed {seed} {done:6} steps {returned(model, test):10.3f}", flush=True)
            model.learn(1024, reset_num_timesteps=False)
        print(f"seed {seed} {given.steps:6} steps {returned(model, test):10.3f}", flush=True)
        if given.out:
            print(export(model, scaled(env), given.out))


if __name__ == "__main__":
    main()

"""Client trainings per second of a convolutional network, on a GPU or on the processor.

    python benchmarks/w5.py                          # 1000 clients x 50 images of 32x32x3, McMahan CNN, on the GPU
    python benchmarks/w5.py --device cpu --tiny      # the same code in seconds, on a small network of clients

Each line is one emulated run of FedAvg (one epoch, batches of 10, TDMA uplink, broadcast, records on, the model
evaluated on 100 images after every round); nothing but the way of training differs. `trainings/s` comes from the
median wall-clock time of a round, all of it; `busy` is the share of that time in which the GPU computes; `error` is the
relative distance of the model after the first round from that of the way in the first line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.engines.stacks.chain import chain_form
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.graph.engine import Engine

WAYS: Mapping[str, Callable[[], Engine]] = {
    "serial": SerialEngine,
    "vmap": partial(BatchedEngine, form=VmapForm),
    "chain": partial(BatchedEngine, form=chain_form),
    "by-rule": RuleEngine,
}
FULL = ("devices.count=1000", "data={kind: synthetic, n_samples: 50000, n_test: 100, features: [3, 32, 32]}")
TINY = ("devices.count=12", "data={kind: synthetic, n_samples: 240, n_test: 60, features: [3, 8, 8]}")
COMMON = (
    "channel.fading=none",  # a model of 69 Mbit takes seconds on the air, in which fading has hundreds of blocks
    "model={kind: mcmahan-cnn}",
    "partition={kind: iid}",
    "algorithm={kind: fedavg, lr: 0.1, batch_size: 10, local_epochs: 1, cohort: 4}",
    "evaluation={every_rounds: 1, per_device: false}",
)


@dataclass(frozen=True)
class Measured:
    """What one run showed; `busy` is None where there is no GPU."""

    way: str
    cohort: int
    tf32: bool
    trainings_per_s: float
    round_s: float
    busy: float | None
    peak_mb: float
    mean_wavefront: float
    error: float
    parts_s: dict[str, float]


class Rounds:
    """Watches a run: the model after the first round, when each round ended, and how long the GPU was busy in one."""

    def __init__(self, *, cuda: bool) -> None:
        self.cuda = cuda
        self.first: Tensor | None = None
        self.ended_s: list[float] = []
        self.busy_s: float | None = None
        self._profile: profile | None = None

    def __call__(self, fed: Federation) -> None:
        """An observer for the end of each round."""
        if self._profile is not None:
            torch.cuda.synchronize()
            self._profile.stop()
            self.busy_s = sum(event.self_device_time_total for event in self._profile.key_averages()) / 1e6
            self._profile = None
        elif self.cuda and fed.round == 1:
            self._profile = profile(activities=[ProfilerActivity.CUDA])
            self._profile.start()
        if self.first is None:
            self.first = fed.graph.read(fed._observer.latest).cpu()
        self.ended_s.append(time.perf_counter())

    @property
    def round_s(self) -> float:
        """The median time of the rounds after the first one, which warms up, and the profile."""
        ended_s = self.ended_s[2:]
        return statistics.median(b - a for a, b in pairwise(ended_s))


def measure(way: str, overrides: tuple[str, ...], n_rounds: int, reference: Tensor | None) -> tuple[Measured, Tensor]:
    """One way of training, measured, and its model after the first round; without a reference it is its own."""
    scenario = load_scenario("quickstart", [*COMMON, *overrides, f"stop={{rounds: {3 + n_rounds}}}"])
    fed, cuda = build(scenario), scenario.training.device == "cuda"
    watch = Rounds(cuda=cuda)
    fed.graph.engine = WAYS[way]()
    fed.observers.append(watch)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    fed.run(scenario.algorithm)
    assert watch.first is not None
    cohort = scenario.algorithm.cohort  # type: ignore[union-attr]
    measured = Measured(
        way=way,
        cohort=cohort,
        tf32=scenario.training.tf32,
        trainings_per_s=cohort / watch.round_s,
        round_s=watch.round_s,
        busy=None if watch.busy_s is None else watch.busy_s / watch.round_s,
        peak_mb=torch.cuda.max_memory_allocated() / 1e6 if cuda else float("nan"),
        mean_wavefront=fed.graph.statistics.mean_wavefront,
        error=0.0 if reference is None else float((watch.first - reference).norm() / reference.norm()),
        parts_s={part: spent.host_s for part, spent in fed.graph.host.parts().items()},
    )
    return measured, watch.first


def table(device: str, cohorts: list[int], ways: list[str], *, tiny: bool, n_rounds: int, tf32: bool) -> list[Measured]:
    """All ways for all cohorts, each printed as soon as it is there; the first way is the reference of the others."""
    overrides = (*(TINY if tiny else FULL), f"training.device={device}", f"training.tf32={str(tf32).lower()}")
    measured = []
    for cohort in cohorts:
        reference = None
        for way in ways:
            try:
                one, first = measure(way, (*overrides, f"algorithm.cohort={cohort}"), n_rounds, reference)
            except torch.OutOfMemoryError as error:
                print(f"{way:8s} cohort {cohort:4d}: {str(error).splitlines()[0]}", flush=True)
                continue
            reference = first if reference is None else reference
            measured.append(one)
            print(line(one), flush=True)
    return measured


def line(one: Measured) -> str:
    """A measurement in one line."""
    busy = "-" if one.busy is None else f"{one.busy:.0%}"
    parts = ", ".join(f"{part} {spent_s:.2f}" for part, spent_s in one.parts_s.items())
    return (
        f"{one.way:8s} cohort {one.cohort:4d}{' tf32' if one.tf32 else ''}: {one.trainings_per_s:9.1f} trainings/s, "
        f"round {one.round_s * 1e3:9.1f} ms, busy {busy}, peak {one.peak_mb:.0f} MB, "
        f"wavefront {one.mean_wavefront:.0f}, error {one.error:.1e}\n         host s of the whole run: {parts}"
    )


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cohorts", type=int, nargs="+")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--json", help="also write the measurements to this file")
    options = parser.parse_args()
    cohorts = options.cohorts or ([4, 8] if options.tiny else [50, 500])
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}")
    measured = table(
        options.device, cohorts, options.ways, tiny=options.tiny, n_rounds=options.rounds, tf32=options.tf32
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": name, "torch": torch.__version__, "runs": [asdict(one) for one in measured]}, file)


if __name__ == "__main__":
    main()

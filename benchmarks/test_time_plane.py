"""Speed of the time plane, as ratios within one run: to a bare queue on SimPy, over waiting devices, over idle time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import simpy

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER, Ledger

TRANSFERS = 60_000


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """The median of some measurements."""
    return statistics.median(measure() for _ in range(repeats))


def tdma_rate(devices: int, transfers: int = TRANSFERS) -> float:
    """Transfers per host second over a TDMA uplink with fading and records; every device always has one waiting."""
    clock, ledger, streams = Clock(), Ledger(), Streams(0)
    links = CellLinks(np.full((1, devices), 100.0), [streams.key("fading")])
    settings = Uplink(access=Tdma(), timeout_s=3600.0)
    use = settings.access.use(Band.of(20e6, Shannon(), Rayleigh()), links, 1, devices)
    there = Presence(Always(), 0, devices)
    medium = Medium(clock, ledger, there, settings, use, links, Radios(DeviceRadio()))

    def device(index: int, count: int) -> Generator[Any, Any, None]:
        for _ in range(count):
            yield medium.send(index, SERVER, Message(None, 251_200))

    def everyone() -> Generator[Any, Any, None]:
        yield gather(clock, (device(index, transfers // devices) for index in range(devices)))

    started = time.perf_counter()
    clock.run_process(everyone())
    assert len(ledger.transfers) == transfers // devices * devices
    return len(ledger.transfers) / (time.perf_counter() - started)


def bare_queue_rate(devices: int, transfers: int = TRANSFERS) -> float:
    """Transfers per host second of a callback-driven queue on SimPy: no radio, no records, no deliveries."""
    env = simpy.Environment()
    queue: deque[simpy.Event] = deque()
    busy = False

    def serve(_event: simpy.Event | None = None) -> None:
        nonlocal busy
        busy = bool(queue)
        if busy:
            sent = queue.popleft()
            done = env.timeout(1)
            done.callbacks.append(lambda _: sent.succeed())
            done.callbacks.append(serve)

    def device(count: int) -> Generator[Any, Any, None]:
        for _ in range(count):
            sent = env.event()
            queue.append(sent)
            if not busy:
                serve()
            yield sent

    for _ in range(devices):
        env.process(device(transfers // devices))
    started = time.perf_counter()
    env.run()
    return transfers / (time.perf_counter() - started)


def test_transfers_per_second_against_a_bare_queue() -> None:
    """With radio, fading, deliveries and records a transfer costs less than 3.6 times what a bare queue takes."""
    ours, bare = median_of(3, lambda: tdma_rate(1000)), median_of(3, lambda: bare_queue_rate(1000))
    print(f"\nTDMA with fading and ledger, 1000 devices: {ours:,.0f} transfers/s; bare queue: {bare:,.0f}/s")
    assert ours > bare / 3.6


def test_waiting_devices_do_not_slow_the_clock() -> None:
    """Events per second fall by less than half from 10^2 to 10^4 waiting devices."""
    few, many = median_of(3, lambda: tdma_rate(100)), median_of(3, lambda: tdma_rate(10_000))
    print(f"\n100 waiting devices: {few:,.0f} transfers/s; 10,000: {many:,.0f}/s")
    assert many > few / 2


def test_idle_time_costs_nothing() -> None:
    """A process that sleeps for 10^6 simulated seconds costs what one second costs."""

    def run(idle_s: float) -> float:
        clock = Clock()

        def process() -> Generator[Any, Any, None]:
            for _ in range(2000):
                yield clock.sleep(idle_s)

        clock.process(process())
        started = time.perf_counter()
        clock.run()
        return time.perf_counter() - started

    second, long = median_of(5, lambda: run(1.0)), median_of(5, lambda: run(1e6))
    print(f"\n2000 sleeps of 1 s: {second * 1e3:.2f} ms; of 10^6 s: {long * 1e3:.2f} ms")
    assert long < 3 * second


LARGE = """
import json, sys, time
started = time.perf_counter()
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.build import build
devices, cohort, rounds = map(int, sys.argv[1:])
scenario = load_scenario("quickstart", [
    f"devices.count={devices}", f"algorithm.cohort={cohort}", f"stop.rounds={rounds}", "partition=iid",
    "data={kind: synthetic, n_samples: %d, features: 20}" % (2 * devices), "evaluation.per_device=false",
])
fed = build(scenario, timing_only=True)
built = time.perf_counter()
fed.run(scenario.algorithm)
ended = time.perf_counter()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak_byte = int(status["VmHWM"].split()[0]) * 1024  # getrusage would count the process that started this one, too
print(json.dumps({"start_s": built - started, "run_s": ended - built, "peak_byte": peak_byte, "rounds": fed.round}))
"""


@pytest.mark.parametrize(
    ("devices", "cohort", "rounds", "max_byte"), [(100_000, 100, 100, 6e8), (1_000_000, 100_000, 1, 1.2e9)]
)
def test_very_many_devices_fit(devices: int, cohort: int, rounds: int, max_byte: float) -> None:
    """Timing only: in little memory, and a participant costs less than 26 transfers of a bare queue.

    A participant is a broadcast's reception, a computation, an uplink, their records and a process.
    """
    command = [sys.executable, "-c", LARGE, *map(str, (devices, cohort, rounds))]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    bare_s = 1 / median_of(3, lambda: bare_queue_rate(1000))
    print(
        f"\n{devices:,} devices: ready after {measured['start_s']:.1f} s (imports included), {measured['rounds']} "
        f"rounds of {cohort:,} in {measured['run_s']:.2f} s, peak {measured['peak_byte'] / 1e6:.0f} MB; "
        f"bare queue {bare_s * 1e6:.2f} us"
    )
    assert measured["peak_byte"] < max_byte
    assert measured["run_s"] < 26 * rounds * cohort * bare_s


TURNS = """
import sys, time
from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.federation.local_rounds import LocalRounds
devices, cohort, rounds, access = *map(int, sys.argv[1:4]), sys.argv[4]
scenario = load_scenario("quickstart", [
    f"devices.count={devices}", f"algorithm.cohort={cohort}", f"stop.rounds={2 * rounds}", "partition=iid",
    "data={kind: synthetic, n_samples: %d, features: 20}" % (2 * devices), f"network.uplink.access={access}",
    "evaluation={per_device: false, every_rounds: %d}" % (3 * rounds),
])
fed, take = build(scenario, timing_only=True), LocalRounds.take
LocalRounds.take = lambda self, *args, **options: fed.round % 2 == 0 and take(self, *args, **options)
ends_s = [time.process_time()]
fed.observers.append(lambda fed: ends_s.append(time.process_time()))
fed.run(scenario.algorithm)
print(*(after - before for before, after in zip(ends_s, ends_s[1:])))
"""


@pytest.mark.parametrize(
    ("devices", "cohort", "rounds", "access", "ratio"),
    [(1_000_000, 100_000, 3, "tdma", 6.0), (5_000, 1_000, 7, "ofdma", 4.0), (5_000, 1_000, 7, "noma", 1.8)],
)
def test_rounds_as_arrays_against_rounds_of_events(
    devices: int, cohort: int, rounds: int, access: str, ratio: float
) -> None:
    """Rounds of one timing-only run are played as arrays and with events by turns: medians of processor time."""
    command = [sys.executable, "-c", TURNS, *map(str, (devices, cohort, rounds)), access]
    took_s = [
        float(each) for each in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ]
    as_arrays, one_by_one = (statistics.median(took_s[first::2]) for first in (0, 1))
    print(
        f"\n{access}, {cohort:,} of {devices:,} devices: a round as arrays {as_arrays:.3f} s, with events "
        f"{one_by_one:.3f} s: {one_by_one / as_arrays:.1f} times"
    )
    assert one_by_one > ratio * as_arrays


def test_a_round_costs_what_its_participants_cost() -> None:
    """Rounds of 1,000 out of 1,000,000 devices take the processor time of rounds of 1,000 out of 10,000."""
    took_s = {}
    for devices in (10_000, 1_000_000):
        command = [sys.executable, "-c", TURNS, str(devices), "1000", "10", "tdma"]
        each = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        took_s[devices] = statistics.median(map(float, each[::2]))
    few, many = took_s.values()
    print(f"\n1,000 participants of 10,000: {few * 1e3:.1f} ms a round; of 1,000,000: {many * 1e3:.1f} ms")
    assert many < 1.3 * few

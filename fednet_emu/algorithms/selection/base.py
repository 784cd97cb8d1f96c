"""Device selection: the rules that select the devices of a round, and the information on which the server decides.

A rule uses only information that a real server would have, and that is as old as it would be on a real server:

- values that a device has reported once, when it joined: its number of samples and its speed;
- results of earlier rounds: the invited devices, the times of arrivals, and the losses that arrived with uploads. These
  results are as old as the round in which they were observed (`last_invited`, `last_arrived`);
- the rates of the links at their current mean SNR, as if each present device had just reported its rate. Fading,
  interference and future queues are unknown;
- the current energy in the battery of each present device, reported in the same way.

A rule has no information about the future: slowdowns of computations, channel states, and departures of devices.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.errors import ScenarioError, one_line
from fednet_emu.federation import Device, Federation, SgdPlan, Statistic
from fednet_emu.federation.outside import Orders


class RoundWork:
    """The work of a device in a round, and its expected duration according to the server's information.

    A device takes the local steps of `plan`, receives `down` scalars and sends `up` scalars in single precision.
    `up_bit` is the size of its upload in bits, which is smaller if the model is compressed.
    """

    def __init__(self, fed: Federation, plan: SgdPlan, down: int, up: int) -> None:
        self._fed, self.plan, self.down, self.up = fed, plan, down, up
        size = fed.task.model.size
        self.up_bit = fed.links.update_bit(size) + FLOAT_BIT * (up - size)
        self.n_samples: IntArray = fed.task.n_samples

    @cached_property
    def flop_per_s(self) -> Array:
        return np.array([k.flop_per_s for k in self._fed.devices()])

    @cached_property
    def flop(self) -> Array:
        flop, own = self._fed.task.model.flop_per_sample, self.n_samples.tolist()
        processed = {n: self.plan.n_samples_processed(n) for n in dict.fromkeys(own)}
        return flop * np.array([processed[n] for n in own])

    def flop_of(self, orders: Orders) -> Array:
        """Return the number of operations [N] in each device's local steps; `orders` may set the numbers of steps."""
        if orders.steps is None:
            return self.flop
        flop, own = self._fed.task.model.flop_per_sample, self.n_samples.tolist()
        return flop * np.array([orders.plan(self.plan, k, n).n_samples_processed(n) for k, n in enumerate(own)])

    @property
    def budget_left(self) -> float:
        """Remaining share, from 0 to 1, of the round limit or of the time limit of the run, whichever is smaller."""
        return self._fed.budget_left

    @cached_property
    def compute_s(self) -> Array:
        """Expected time [N] in s of the local steps at the devices' clock frequencies, without random slowdowns."""
        return np.array([self._fed.processors.expected_s(k, flop) for k, flop in enumerate(self.flop.tolist())])

    def rates_bps(self, numbers: IntArray, *, down: bool) -> Array:
        """Return the expected current link rates [N] of the devices `numbers` in bit/s; nan for all other devices."""
        rates, network = np.full(self._fed.n_devices, np.nan), self._fed.network
        if network.moving or network.uplink.rates is not None or network.downlink.rates is not None:
            rates[numbers] = network.expected_bps(numbers, down=down)
        else:
            rates[numbers] = self._still_bps[down][numbers]
        return rates

    @cached_property
    def _still_bps(self) -> tuple[Array, Array]:
        everybody, network = np.arange(self._fed.n_devices), self._fed.network
        return network.expected_bps(everybody, down=False), network.expected_bps(everybody, down=True)

    def charges_j(self, numbers: IntArray) -> Array:
        """Return the current energy [N] in J in the batteries of devices `numbers`; nan for all other devices."""
        charges_j, batteries = np.full(self._fed.n_devices, np.nan), self._fed.presence.batteries
        if batteries is not None:
            charges_j[numbers] = batteries.charges_j()[numbers]
        return charges_j


@dataclass(frozen=True)
class ServerView:
    """The server's information at the start of a round; entry k of every array [N] belongs to device k.

    For a device that was cancelled at a deadline, `took_s` is the time until the deadline, which is a lower bound.
    `told` contains the latest metrics [N] that devices have sent, by name; it is empty if the rule requests no
    `reports`.
    """

    t: int  # index of the round, from 0
    now_s: float  # simulated time
    size: int  # number of devices to select, the algorithm's `cohort`
    rng: np.random.Generator  # random numbers for the decision of this round
    there: IntArray  # indices of the devices that can be selected, in order: present, and with samples
    n_samples: IntArray  # number of samples of each device, reported once
    flop_per_s: Array  # nominal speeds, reported once
    invited: IntArray  # int64 [N], number of invitations of each device
    last_invited: IntArray  # the latest round in which a device was invited; -1 if never
    arrived: IntArray  # int64 [N], number of arrived uploads
    last_arrived: IntArray  # the latest round in which an upload arrived; -1 if never
    took_s: Array  # time from invitation to arrival in the latest round with a reply; nan if there is none
    told: dict[Statistic, Array]  # metrics of the latest arrived upload; nan if there is none
    polled: IntArray  # indices of the devices that `poll` has selected; empty during `poll`
    polled_loss: Array  # the received losses [N] of the current model; nan for all other devices
    memory: Any  # the state of the rule, created by `start`
    work: RoundWork  # the work of a device in the round
    later: Callable[[int], ServerView]  # returns the information at the current time, for the round with this index

    @cached_property
    def rate_bps(self) -> Array:
        """Expected uplink rates [N] in bit/s of devices that send alone now, at mean SNR; nan for absent devices."""
        return self.work.rates_bps(self.there, down=False)

    @cached_property
    def downlink_rate_bps(self) -> Array:
        return self.work.rates_bps(self.there, down=True)

    @cached_property
    def charge_j(self) -> Array:
        """Current energy [N] in the batteries, in J; nan for absent devices, or if there are no batteries."""
        return self.work.charges_j(self.there)

    @property
    def compute_s(self) -> Array:
        return self.work.compute_s

    @cached_property
    def upload_s(self) -> Array:
        """Upload times [N] in s at expected rates, without headers or other senders; nan for absent devices."""
        return _air_s(self.work.up_bit, self.rate_bps)

    @cached_property
    def download_s(self) -> Array:
        return _air_s(FLOAT_BIT * self.work.down, self.downlink_rate_bps)


def _air_s(size_bit: int, rate_bps: Array) -> Array:
    """Return the transmission time [N] in s of `size_bit` bits at `rate_bps` [N]; infinite at a rate of zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(size_bit / rate_bps, np.float64)


class Selection(Component):
    """A rule that selects the devices of a round."""

    single_uploads: ClassVar[str] = ""
    """Reason why the rule needs the uploads of single devices; empty if sums of uploads suffice."""
    reports: ClassVar[tuple[Statistic, ...]] = ()
    """Metrics that devices send with their uploads, 32 bits per metric; none by default."""
    polls: ClassVar[bool] = False
    """Whether the rule uses `poll` to request losses from devices before the round."""

    @property
    def needs_losses(self) -> bool:
        """True if results of training affect the selection; a timing-only run then assumes that every loss is 1."""
        return self.polls or any(told != "samples" for told in self.reports)

    def start(self, n_devices: int) -> Any:
        """Return the state of the rule before the first round; `choose` may modify this state."""
        return None

    def most(self, cohort: int, n_devices: int) -> int:
        return min(cohort, n_devices)

    def rate(self, cohort: int, n_devices: int) -> float | None:
        """Return the probability of selecting each device; None if devices are not selected independently."""
        return None

    def problem(self, cohort: int) -> str:
        """Return why the settings are invalid for cohorts of size `cohort`; an empty string if they are valid."""
        return ""

    def poll(self, view: ServerView) -> Sequence[int]:
        """Return the indices of the devices that receive the model and report its loss before the selection."""
        return ()

    def poll_batch(self, plan: SgdPlan) -> int | None:
        """Return the number of samples on which a polled device computes the loss; None for all its samples."""
        return None

    @abstractmethod
    def choose(self, view: ServerView) -> Sequence[int]:
        """Return the indices of the selected devices, a subset of `view.there`."""


def chosen(numbers: Sequence[int], there: Sequence[Device]) -> list[Device]:
    """Return the devices of `there` with the indices `numbers`, in order; raise an error if an index is not valid."""
    try:
        numbers = sorted(int(number) for number in numbers)
    except (TypeError, ValueError):
        what = f"chooses no devices, got {one_line(repr(numbers))}"
        raise ScenarioError(f"algorithm.selection: {what}; choose indices of `there`") from None
    able = {k.index: k for k in there}
    wrong = next((n for n in numbers if n not in able), None)
    if wrong is not None or len(set(numbers)) < len(numbers):
        what = "a device twice" if wrong is None else f"device {wrong}, which is away or has no samples"
        raise ScenarioError(f"algorithm.selection: chooses {what}, got {numbers}; choose distinct numbers of `there`")
    return [able[number] for number in numbers]


def highest(values: Array, view: ServerView, among: IntArray | None = None) -> list[int]:
    """Return the `view.size` devices with the highest `values` [N], in descending order.

    The devices are chosen from the indices `among`, by default all present devices. Ties are random; nan is last.
    """
    shuffled = view.rng.permutation(view.there if among is None else among)
    chosen: list[int] = shuffled[np.argsort(-values[shuffled], kind="stable")[: view.size]].tolist()
    return chosen


def weighted(numbers: IntArray, weights: Array, size: int, rng: np.random.Generator) -> list[int]:
    """Draw `size` of the `numbers` at random without replacement; each draw is in proportion to the `weights`.

    The method is an exponential race (Efraimidis and Spirakis, "Weighted Random Sampling with a Reservoir", Information
    Processing Letters 97(5), 2006). Numbers of weight zero are drawn only after all others.
    """
    race = rng.exponential(size=len(numbers)) / np.maximum(weights, 1e-300)  # the minimum keeps the quotient finite
    drawn: list[int] = numbers[np.argsort(race, kind="stable")[:size]].tolist()
    return drawn

"""What the settings of a scene say, in numbers: links, rates, times, powers, presence, and the dice of a run.

Everything is a closed form of the settings. Only random numbers are the project's own, drawn by their keys.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

from fednet_emu.kernel.streams import Streams, mix, uniform
from fednet_emu.scenario.model import Scenario

NS, NEVER = 10**9, math.inf
FLOP_PER_SAMPLE, MODEL_BIT, MODEL_SIZE = 36, 320, 10
"""Of the linear model with 9 features."""
LEAST_S, MOST_S, NOTICE_S = 60.0, 3600.0, 1.0
"""The shortest and the longest timeout, and when a sender knows that its receiver is out of reach."""
BLOCK_HZ = 180e3
"""The narrowest part of a band, a resource block."""


class Powers(NamedTuple):
    """What a device draws in W: `idle_w` all the time, and in each of its states so much more.

    While it sends, that is `circuit_w` and `amplifier_w` times the part of its transmit power.
    """

    computing_w: float
    amplifier_w: float
    circuit_w: float
    receiving_w: float
    idle_w: float


def powers_of(scenario: Scenario) -> Powers:
    """The only place where powers are read off the settings."""
    radio, computing = scenario.channel.device, scenario.devices.compute_energy
    amplifier_w = watt(radio.tx_power_dbm) / (radio.amplifier_efficiency or 1.0)
    computing_w = max(computing.active_w - radio.idle_w, 0.0)  # a measured power is that of the whole device
    return Powers(computing_w, amplifier_w, radio.circuit_w, radio.rx_consumption_w, radio.idle_w)


def watt(dbm: float) -> float:
    """A power in W."""
    return 10 ** ((dbm - 30) / 10)


def ratio(level_db: float | None) -> float:
    """A level in dB as a ratio; 0 for none."""
    return 0.0 if level_db is None else 10 ** (level_db / 10)


def to_ns(duration_s: float) -> int:
    """Whole nanoseconds, rounded up but for the noise of a float."""
    return math.ceil(duration_s * NS - 1e-4)


class Physics:
    """A scenario of a few devices that stand still, under a law of path loss with a closed form."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.powers, self.streams = scenario, powers_of(scenario), Streams(scenario.seed)
        channel, devices = scenario.channel, scenario.devices
        self.hertz, self.n = channel.bandwidth_hz, devices.count
        self.stations = getattr(scenario.network.cells, "xy_m", ((0.0, 0.0),))
        self.header_bit = getattr(scenario.network.overhead, "header_bit", 0)
        self.message_bit = MODEL_BIT + self.header_bit
        losses_db = [[self.loss_db(place, station) for station in self.stations] for place in devices.placement.xy_m]
        self.serving = [loss.index(min(loss)) for loss in losses_db]
        self.up_snr = [self.snr(min(loss), channel.device, channel.base_station) for loss in losses_db]
        self.down_snr = [self.snr(min(loss), channel.base_station, channel.device) for loss in losses_db]
        self.names: dict[int, int] = {}  # keys of the draws of users, by radio: their class and number alone
        for its in scenario.traffic:  # users have the radio of a device, and no battery
            for user in range(its.users):
                self.names[len(self.serving)] = mix(self.streams.key("traffic", its.name), user) >> 1
                loss_db = self.loss_db(its.placement.xy_m[user % len(its.placement.xy_m)], self.stations[0])
                self.serving.append(0)
                self.up_snr.append(self.snr(loss_db, channel.device, channel.base_station))
                self.down_snr.append(self.snr(loss_db, channel.base_station, channel.device))
        self.arrivals_ns = [[0] for _ in range(self.n)]  # of harvested energy, as far as was asked for
        steps = scenario.algorithm.local_steps
        self.flop = [FLOP_PER_SAMPLE * 20 * steps] * self.n  # 20 samples each, all of them in every step
        self.compute_s = [flop / speed for flop, speed in zip(self.flop, devices.speed.flop_per_s, strict=True)]

        base = channel.base_station
        self.station_w = watt(base.tx_power_dbm) / (base.amplifier_efficiency or 1.0) + base.circuit_w
        access, narrow = scenario.network.uplink.access, channel.narrowing == "on"
        self.narrowest_hz = (channel.narrowest_hz or BLOCK_HZ) if narrow else NEVER
        symbols = getattr(access, "symbols_per_slot", None) or 1
        self.burst_s = math.ceil(MODEL_SIZE / symbols) * getattr(access, "slot_s", 0.0)

    def loss_db(self, place: tuple[float, float], station: tuple[float, float]) -> float:
        """L0 + 10 n log10(d) with the distance in space."""
        law, channel = self.scenario.channel.path_loss, self.scenario.channel
        height_m = channel.base_station.height_m - channel.device.height_m
        return law.reference_loss_db + 10 * law.exponent * math.log10(math.dist((*place, height_m), (*station, 0)))

    def snr(self, loss_db: float, sender: object, receiver: object) -> float:
        """Power over noise on the whole band."""
        density_dbm_hz = self.scenario.channel.noise_density_dbm_hz + receiver.noise_figure_db
        return watt(sender.tx_power_dbm - loss_db) / (watt(density_dbm_hz) * self.hertz)

    def bps(self, snr: float, share: float = 1.0) -> float:
        """Rate on a share of the band of a link with this SNR on the whole of it.

        Below the least efficiency it has that one, on as many hertz as reach it, if repetition on one block reaches it.
        """
        law, hertz, sinr = self.scenario.channel.rate, self.hertz * share, snr / share
        if law.kind == "fixed":
            return law.bit_rate_bps * (law.on_outage == "lose" or sinr >= ratio(law.threshold_db))
        if sinr < self.min_sinr:
            on_one_block = sinr * hertz / min(self.narrowest_hz, hertz)
            reached = on_one_block * law.max_repetitions >= self.min_sinr
            return hertz * sinr / self.min_sinr * law.min_efficiency_bps_hz * reached
        efficiency_bps_hz = math.log2(1 + sinr / ratio(law.gap_db))
        return hertz * min(efficiency_bps_hz, law.max_efficiency_bps_hz or NEVER)

    @property
    def min_sinr(self) -> float:
        """The SINR of the least efficiency of a rate by the hertz."""
        law = self.scenario.channel.rate
        return ratio(law.gap_db) * (2**law.min_efficiency_bps_hz - 1)

    def patience_s(self, kind: str, snr: float, size_bit: float) -> float:
        """The longest time on the air of a link with this SNR; 0 if it is not tried.

        If nothing is said, 20 times the time that the message takes on its part of the band, from a minute to an hour;
        an hour where that is not known before. What takes more than an hour alone is not tried.
        """
        way = getattr(self.scenario.network, kind)
        planner = getattr(way.access, "planner", None)
        if way.timeout_s is not None:
            return float(way.timeout_s)
        if (
            self.scenario.traffic
            or way.access.kind == "over-the-air"
            or (planner is not None and planner.kind != "fedl")
        ):
            return MOST_S
        shares = (1.0, 1 / self.n) if way.access.kind == "ofdma" else (1.0,)
        takes_s = [size_bit / (self.bps(snr, share) or 1e-300) for share in shares]
        if min(takes_s) > MOST_S:
            return 0.0
        return MOST_S if len(self.stations) > 1 else min(max(20 * max(takes_s), LEAST_S), MOST_S)

    def leaves_ns(self, device: int, now_ns: int) -> float:
        """End of the present window; now if there is none."""
        windows = getattr(self.scenario.devices.availability, "devices", {}).get(device, ((0.0, NEVER),))
        inside = [until_s for since_s, until_s in windows if to_ns(since_s) <= now_ns < until_s * NS - 1e-4]
        return (NEVER if inside[0] == NEVER else to_ns(inside[0])) if inside else now_ns

    def returns_ns(self, now_ns: int) -> float:
        """The next start of a window."""
        windows = getattr(self.scenario.devices.availability, "devices", {}).values()
        starts = [to_ns(since_s) for each in windows for since_s, _ in each]
        return min((start for start in starts if start > now_ns), default=NEVER)

    # ---- dice --------------------------------------------------------------------------------------------------------

    def erased(self, kind: str, ends: tuple[int, int], count: int, error: float) -> bool:
        """Whether the count-th message of a link is lost by chance: by what was planned, or at random."""
        sender, receiver = (self.names.get(end, end) for end in ends)
        key = mix(mix(self.streams.key("loss", kind), sender + 1), receiver + 1)
        loss = getattr(self.scenario.network, kind).message_loss
        return uniform(mix(key, 1), count) < error or uniform(key, count) < getattr(loss, "probability", 0.0)

    def backhaul_erased(self, edge: int, up: bool, count: int) -> bool:
        """The same on the backhaul."""
        key = mix(mix(self.streams.key("loss", "backhaul"), edge), int(up))
        return uniform(key, count) < getattr(
            self.scenario.network.edge_servers.backhaul.message_loss, "probability", 0.0
        )

    def gain(self, device: int, now_ns: int) -> float:
        """Fading of an uplink now, of mean 1: none, or Rayleigh."""
        fading = self.scenario.channel.fading
        if fading.kind == "none":
            return 1.0
        key = mix(self.streams.key("fading", "uplink"), device) & ~1
        return -math.log1p(-uniform(key, now_ns // to_ns(fading.coherence_s)))

    def charge_j(self, device: int) -> float:
        """What is in a battery at the start."""
        battery = self.scenario.devices.battery
        spread = battery.initial_spread * uniform(self.streams.key("battery"), device)
        return battery.capacity_j * (battery.initial_share - spread)

    def harvest(self, device: int, now_ns: int) -> tuple[float, float, float]:
        """Power now, until when it lasts, and the energy that arrives then."""
        law = self.scenario.devices.battery.harvesting
        if law.kind in ("none", "constant"):
            return getattr(law, "power_w", 0.0), NEVER, 0.0
        if law.kind == "trace":
            step = now_ns // to_ns(law.step_s)
            return law.power_w[step % len(law.power_w)], (step + 1) * to_ns(law.step_s), 0.0
        if law.kind == "solar":
            step_ns, half = to_ns(law.day_s / law.steps), law.steps // 2
            step = now_ns // step_ns
            begin, end = (math.cos(math.pi * min(step % law.steps + more, half) / half) for more in (0, 1))
            return law.peak_w * (begin - end) * half / math.pi, (step + 1) * step_ns, 0.0
        arrivals_ns, key = self.arrivals_ns[device], mix(self.streams.key("harvesting"), device)
        while arrivals_ns[-1] <= now_ns:
            gap_s = -law.mean_interval_s * math.log(uniform(key, len(arrivals_ns) - 1))
            arrivals_ns.append(arrivals_ns[-1] + max(to_ns(gap_s), 1))
        return 0.0, arrivals_ns[bisect_right(arrivals_ns, now_ns)], law.arrival_j

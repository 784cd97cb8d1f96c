"""A second implementation of Wi-Fi contention: stations with counters, one step per busy period."""

from random import Random

SLOT_US, REQUEST_FRAME_US, FIRST_WINDOW, LAST_WINDOW = 9.0, 32.0, 16, 1024


class Channel:
    """A channel for which stations contend that always have something to send.

    Args:
        stations: how many there are.
        success_us: a frame of data with its acknowledgement.
        collision_us: a collision that has data.
        data_us: what a sender radiates of its data.
        request_us: a block-ack request alone and in a collision; None without requests.
        freezes: whether counters stand still in a busy period, which else counts as a slot.
        seed: of the random numbers.
    """

    def __init__(self, stations, success_us, collision_us, data_us, request_us=None, *, freezes=False, seed=0):
        self.rng, self.freezes = Random(seed), freezes
        self.success_us, self.collision_us, self.request_us = success_us, collision_us, request_us
        self.data_us, self.radiated_us = data_us, 0.0
        self.now_us, self.sent = 0.0, [0] * stations
        self.window = dict.fromkeys(range(stations), FIRST_WINDOW)
        self.owes = dict.fromkeys(range(stations), False)
        self.counter = {station: self.rng.randrange(FIRST_WINDOW) for station in range(stations)}

    def step(self):
        """Go to the end of the next busy period; the station whose data got through, or None."""
        wait = min(self.counter.values())
        self.now_us += wait * SLOT_US
        senders = [station for station, left in self.counter.items() if left == wait]
        self.counter = {station: left - wait for station, left in self.counter.items()}
        asking = [station for station in senders if self.owes[station]]
        if len(senders) == 1:
            self.now_us += self.request_us[0] if asking else self.success_us
        else:
            self.now_us += self.request_us[1] if len(asking) == len(senders) else self.collision_us
        for station in self.counter:
            if station in senders:
                self.radiated_us += REQUEST_FRAME_US if self.owes[station] else self.data_us
                lost = len(senders) > 1
                self.window[station] = min(2 * self.window[station], LAST_WINDOW) if lost else FIRST_WINDOW
                self.owes[station] = lost and self.request_us is not None
                self.counter[station] = self.rng.randrange(self.window[station])
            elif not self.freezes:
                self.counter[station] -= 1
        if len(senders) > 1 or asking:
            return None
        self.sent[senders[0]] += 1
        return senders[0]

    def successes_per_s(self, periods):
        """Frames of data per second over so many busy periods."""
        for _ in range(periods):
            self.step()
        return sum(self.sent) / self.now_us * 1e6

    def ends_s(self, frames):
        """When each station has sent so many frames, in order; it leaves then."""
        ends = []
        while self.counter:
            station = self.step()
            if station is not None and self.sent[station] == frames:
                ends.append(self.now_us / 1e6)
                del self.counter[station]
        return ends

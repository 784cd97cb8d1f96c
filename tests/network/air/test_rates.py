"""Claims about slots that carry nothing: whoever is silent or collides waits for the next slot, and loses nothing."""

import numpy as np
import pytest

from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.contention import SlottedAloha
from fednet_emu.network.air.transfer import Grant, Message
from fednet_emu.network.links.links import CellLinks
from fednet_emu.network.planning.access import Planned
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import SERVER
from tests.network.media import medium_of

SLOT_S = 0.01
ALOHA = SlottedAloha(slot_s=SLOT_S, probability=0.5, capture_db=6.0)
LAW = FixedRate(bit_rate_bps=1e6, threshold_db=3.0)
KEY = 12


def ends_s(snr, size_bit):
    """When and how uplinks of all devices at SNRs [cells, devices] end that start at 0."""
    links = CellLinks(snr, [11, 12][: len(snr)])
    medium = medium_of(ALOHA, LAW, links, snr.shape[1], key=KEY, cells=len(snr))
    sent = [medium.send(device, SERVER, Message(None, size_bit)) for device in range(snr.shape[1])]
    medium.clock.run()
    return [(one.value.ended_s, one.value.lost) for one in sent]


def sends(device, slot):
    """Whether a device sends in a slot."""
    return uniform(mix(KEY, device), slot) < 0.5


@pytest.mark.parametrize("cells", [1, 2])
def test_a_slot_without_a_capture_is_no_outage(cells):
    """Two at equal SNRs collide in one cell (0 dB, less than 6 and than 3) and not in two that do not hear each other.

    Each needs three slots of its own; below 3 dB a slot that carries bits would lose them, but silence and collisions
    carry none.
    """
    snr = np.full((1, 2), 100.0) if cells == 1 else np.array([[100.0, 1e-9], [1e-9, 100.0]])
    left, expected, slot, both, silent = [3, 3], [0.0, 0.0], 0, 0, 0
    while any(left):
        on = [device for device in (0, 1) if left[device] and sends(device, slot)]
        for device in on if cells == 2 or len(on) == 1 else []:
            left[device] -= 1
            expected[device] = (slot + 1) * SLOT_S
        slot, both, silent = slot + 1, both + (len(on) == 2), silent + (not on)

    assert ends_s(snr, 30_000) == [(pytest.approx(end_s), "") for end_s in expected]
    assert min(both, silent) > 0


def test_a_planned_part_may_be_too_noisy_for_a_strong_link():
    """20 dB would do, but the noise that was planned with is 60 dB above that of the part: it is known in a second."""
    medium = medium_of(Planned(), Shannon(), CellLinks(np.array([[100.0]]), [11]), 1)
    sent = medium.send(0, SERVER, Message(None, 1000, grant=Grant(1.0, 1.0, 1.0, 1.0, noise=1e6, error=0.0)))
    medium.clock.run()

    assert (sent.value.lost, sent.value.ended_s) == ("unreachable", 1.0)

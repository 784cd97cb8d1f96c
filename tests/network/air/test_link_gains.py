"""Claims about the SNRs between all senders and receivers of a band."""

from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.link_gains import LinkGains


def test_a_radio_does_not_hear_itself(cell):
    """Device 1 sends to 0 and then is sent to by 2: the hand-made SNR is that of the larger number, or 0 to itself."""
    medium = cell(Ofdma(), snr=[5.0, 7.0, 11.0]).medium
    gains = LinkGains(medium.band, medium.links)

    gains.add([1], [1.0])
    gains.listen([1])
    assert gains.mean.tolist() == [[0.0]]
    gains.listen([0])
    gains.add([2], [0.5])

    assert gains.mean.tolist() == [[0.0, 5.5], [7.0, 5.5]]

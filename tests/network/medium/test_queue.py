"""Claims about turns: who may start, and who waits for whom."""

import sys
from types import SimpleNamespace

from fednet_emu.network.air.queue import TurnQueue


def burst(sender, receiver, cell=0):
    """One leg."""
    return [SimpleNamespace(sender=sender, receiver=receiver, cell=cell, cluster=cell)]


def started(queue):
    """Who starts now: the senders."""
    senders = []

    def start(one):
        senders.append(one[0].sender)
        queue.left -= 1
        return True

    queue.start_ready(start)
    return senders


def ended(queue, one):
    """A burst ends."""
    queue.left += 1
    queue.give_back(one)


def test_every_place_that_is_given_back_is_free_again():
    """Two places in one of two cells: the third request waits, and starts when one has ended; at last all are free."""
    queue, bursts = TurnQueue(2, 2), [burst(device, -1, 1) for device in range(3)]
    for one in bursts:
        queue.add(one)

    assert started(queue) == [0, 1]
    assert queue.left == 2
    ended(queue, bursts[0])
    assert started(queue) == [2]
    for one in bursts[1:]:
        ended(queue, one)
    assert queue.left == 4


def test_whoever_sends_or_receives_does_nothing_else_meanwhile():
    """In three clusters 0 sends to 1 and 3 to 4; 1 to 2, between them, waits until 1 has received."""
    queue, bursts = TurnQueue(1, None), [burst(0, 1, 0), burst(1, 2, 1), burst(3, 4, 2)]
    for one in bursts:
        queue.add(one)

    assert started(queue) == [0, 3]
    assert [leg.sender for leg in queue.waiting()] == [1]
    ended(queue, bursts[2])
    assert started(queue) == []
    ended(queue, bursts[0])
    assert started(queue) == [1]
    assert queue.left == sys.maxsize - 1

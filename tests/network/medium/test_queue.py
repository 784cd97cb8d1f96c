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
    queue.start_ready(lambda one: senders.append(one[0].sender) or True)
    return senders


def test_every_place_that_is_given_back_is_free_again():
    """Two places: of three requests the third waits, and starts when one has ended; at last both places are free."""
    queue, bursts = TurnQueue(2, 1), [burst(device, -1) for device in range(3)]
    for one in bursts:
        queue.add(one)

    assert started(queue) == [0, 1]
    assert queue.left == 0
    queue.give_back(bursts[0])
    assert started(queue) == [2]
    for one in bursts[1:]:
        queue.give_back(one)
    assert queue.left == 2


def test_whoever_sends_or_receives_does_nothing_else_meanwhile():
    """In three clusters 0 sends to 1 and 3 to 4; 1 to 2, between them, waits until 1 has received."""
    queue, bursts = TurnQueue(1, None), [burst(0, 1, 0), burst(1, 2, 1), burst(3, 4, 2)]
    for one in bursts:
        queue.add(one)

    assert started(queue) == [0, 3]
    assert [leg.sender for leg in queue.waiting()] == [1]
    queue.give_back(bursts[2])
    assert started(queue) == []
    queue.give_back(bursts[0])
    assert started(queue) == [1]
    assert queue.left == sys.maxsize - 1

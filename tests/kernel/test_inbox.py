"""Claims about inboxes: when a collection comes, and in which order its items are."""

from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import NS_PER_S, Clock
from fednet_emu.kernel.inbox import Inbox
from tests.quick import examples


def story(arrivals, *collections):
    """Collect again and again while (at_s, sender) arrive; a log of (time, senders)."""
    clock, log = Clock(), []
    inbox = Inbox(clock)

    def worker(at_s, sender):
        yield clock.sleep(at_s)
        inbox.put(sender, sender)

    def server():
        for wanted in collections:
            items = yield inbox.collect(**wanted)
            log.append((clock.now_s, items))

    for arrival in arrivals:
        clock.process(worker(*arrival))
    clock.run_process(server())
    return log


def test_a_collection_comes_with_the_last_one_needed():
    """Two of three: it comes with the second arrival, and the third is left for the next time."""
    log = story([(3.0, 0), (1.0, 1), (2.0, 2)], {"at_least": 2}, {"at_least": 1})

    assert log == [(2.0, [1, 2]), (3.0, [0])]


def test_an_overdue_sender_is_waited_for():
    """Enough have arrived, but the one that must be among them has not."""
    log = story([(1.0, 1), (2.0, 2), (5.0, 0)], {"at_least": 2, "including": frozenset({0})})

    assert log == [(5.0, [1, 2, 0])]


def test_what_is_there_already_is_collected_at_once():
    """Arrivals wait for the collector as it waits for them."""
    clock = Clock()
    inbox = Inbox(clock)

    def server():
        inbox.put(4, "early")
        yield clock.sleep(7.0)
        return (yield inbox.collect())

    assert clock.run_process(server()) == ["early"]
    assert clock.now_s == 7.0


@examples(60)
@given(arrivals=st.permutations([(1.0, 0), (2.0, 0), (2.0, 1), (2.0, 2), (2.0, 3), (3.0, 1)]))
def test_arrivals_of_one_instant_are_in_the_order_of_senders(arrivals):
    """Whoever was created first: all that arrive together are collected together, in one order (the heap-tie trap)."""
    log = story(arrivals, {"at_least": 2}, {"at_least": 1})

    assert log == [(2.0, [0, 0, 1, 2, 3]), (3.0, [1])]


def test_a_deadline_collects_whatever_is_there():
    """Nobody waits for ever for those that are lost; the deadline's own instant still counts."""
    assert story([(1.0, 1)], {"at_least": 2, "deadline_s": 4.0}) == [(4.0, [1])]
    assert story([(4.0, 1)], {"at_least": 2, "deadline_s": 4.0}) == [(4.0, [1])]
    assert story([], {"at_least": 1, "deadline_s": 4.0}) == [(4.0, [])]


def test_a_deadline_that_is_over_disturbs_nobody():
    """The first collection came in time; its deadline does not cut the second one short."""
    log = story([(1.0, 1), (6.0, 2)], {"deadline_s": 4.0}, {"at_least": 1})

    assert log == [(1.0, [1]), (6.0, [2])]


def test_nothing_is_needed_of_nobody():
    """A collection of at least none comes at once with what is there."""
    assert story([], {"at_least": 0}) == [(0.0, [])]


def test_a_cancelled_collection_leaves_the_arrivals():
    """Who stops waiting takes nothing with it: the next collector gets it all."""
    clock = Clock()
    inbox = Inbox(clock)

    def impatient():
        yield inbox.collect(at_least=3)

    def server():
        yield gather(clock, [impatient()], deadline_s=1.0)
        inbox.put(9, "late")
        return (yield inbox.collect(at_least=2))

    inbox.put(8, "early")

    assert clock.run_process(server()) == ["early", "late"]
    assert clock.now == NS_PER_S


def test_a_waiting_collector_says_how_many_items_are_there():
    """Two items of one sender are two arrivals."""
    inbox = Inbox(Clock(), lambda device: f"dev-{device}")
    collector = inbox.collect(at_least=3, including=frozenset({1, 2}))
    inbox.put(1, "first")
    inbox.put(1, "second")

    assert collector.describe() == "3 arrivals in the inbox, which holds 2; dev-2 must be among them"


def test_of_one_sender_in_one_instant_the_first_comes_first():
    """What is sent together stays in the order of sending, whatever it is: the items are never compared."""
    clock = Clock()
    inbox = Inbox(clock)

    def server():
        for item in ("second by name", "first by name", {"no": "order"}):
            inbox.put(3, item)
        return (yield inbox.collect(at_least=3))

    assert clock.run_process(server()) == ["second by name", "first by name", {"no": "order"}]

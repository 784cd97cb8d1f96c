"""Claims about random streams: keyed by name, the same everywhere, uniform, and unrelated to their neighbours."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from fednet_emu import arrays
from fednet_emu.kernel.streams import Streams, mix, mixes, uniform, uniforms
from tests.quick import examples

KEYS = st.integers(0, 2**64 - 1)
COUNTERS = st.integers(0, 2**63 - 2)
N = 100_000


@examples(200)
@example(key=2**64 - 1, counter=2**63 - 2)
@given(key=KEYS, counter=COUNTERS)
def test_scalar_and_vector_are_the_same_numbers(key, counter):
    """Hot paths may use either form: bit for bit the same draw."""
    counters = np.array([counter])

    assert int(mixes(key, counters)[0]) == mix(key, counter)
    assert uniforms(key, counters)[0] == uniform(key, counter)


def test_vector_broadcasts_keys_against_counters():
    """A table of links by blocks holds what each link draws alone."""
    keys = np.array([3, 2**63 + 5], np.uint64)
    table = uniforms(keys[:, None], np.arange(4)[None, :])

    assert table.tolist() == [[uniform(int(key), block) for block in range(4)] for key in keys]


def key_of(hashed, counter):
    """The key whose draw of this number hashes to a value: SplitMix64's finaliser, undone step by step."""
    x = hashed
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        x = x ^ (x >> shift) ^ (x >> 2 * shift)
        x = x * pow(factor, -1, 2**64) % 2**64
    return (x - 0x9E3779B97F4A7C15 * (counter + 1)) % 2**64


@pytest.mark.parametrize("hashed", [0, 2**64 - 1])
def test_draws_stay_inside_the_open_interval(hashed):
    """Even the extreme hashes are neither 0 nor 1, so that logarithms and quantiles are finite."""
    key = key_of(hashed, 5)

    assert mix(key, 5) == hashed
    assert 0.0 < uniform(key, 5) < 1.0
    assert uniforms(key, np.array([5]))[0] == uniform(key, 5)


@pytest.mark.parametrize("key", [0, 1, Streams(0).key("fading", "uplink")])
def test_draws_are_uniform(key):
    """Kolmogorov and Smirnov find nothing in 100 000 draws, along the counter and along the key."""
    along_counter = uniforms(key, np.arange(N))
    along_key = uniforms(mixes(key, np.arange(N)), np.zeros(1, np.int64))

    assert stats.kstest(along_counter, "uniform").pvalue > 1e-3
    assert stats.kstest(along_key, "uniform").pvalue > 1e-3


def test_neighbouring_blocks_and_links_are_unrelated():
    """Correlations between blocks k, k + 1 and links i, i + 1 are within four sigma of zero."""
    along_counter = uniforms(5, np.arange(N))
    links = uniforms(mixes(5, np.arange(2))[:, None], np.arange(N)[None, :])

    for one, other in ((along_counter[:-1], along_counter[1:]), (links[0], links[1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(N)
        assert stats.kstest((one + other) % 1.0, "uniform").pvalue > 1e-3


def test_draws_are_the_same_on_every_machine():
    """Golden numbers: a change here changes every result ever published."""
    streams = Streams(7)

    assert mix(0, 0) == 0xE220A8397B1DCDAF  # first output of SplitMix64 from state 0, Vigna's reference code
    assert mix(0, 1) == 0x6E789E6AA1B965F4
    assert mix(0, 2) == 0x06C45D188009454F
    assert streams.key("fading", "uplink") == 0x986814AB9AC56833
    assert streams("batch", 3, 12).integers(0, 2**32, 3).tolist() == [2111573260, 955285672, 2337649089]


def test_a_stream_is_its_name():
    """The same name gives the same numbers again, whatever was drawn in between."""
    streams = Streams(1)
    first = streams("batch", 3, 12).random(4)
    streams("plot").random(1000)

    assert streams("batch", 3, 12).random(4).tolist() == first.tolist()


def test_names_do_not_collide():
    """Device 1 round 23, device 12 round 3, and the texts "1" and 1 are all different streams, of keys as well."""
    names = [("a", 1, 23), ("a", 12, 3), ("a", "1", 23), ("a", (1, 23)), ("a1", 23), ("b", 1, 23), ("a", 1), ("a",), ()]
    streams = Streams(1)

    assert len({streams(*name).random() for name in names}) == len(names)
    assert len({streams.key(*name) for name in names}) == len(names)


def test_seeds_do_not_collide():
    """Another seed changes every stream."""
    assert len({Streams(seed)("batch", 1).random() for seed in range(100)}) == 100
    assert len({Streams(seed).key("batch", 1) for seed in range(100)}) == 100


def test_integers_of_numpy_name_the_same_stream():
    """A device number taken out of an array is the same device."""
    streams = Streams(1)

    assert streams("batch", np.int64(3), (np.int32(4),)).random() == streams("batch", 3, (4,)).random()
    assert streams.key(np.str_("batch"), np.int64(3)) == streams.key("batch", 3)


@examples(60)
@example(seed=2**130 + 5, names=[("batch", k, 7) for k in range(6)])
@given(
    seed=st.integers(0, 2**200),
    names=st.lists(st.tuples(st.text(max_size=5), st.integers(), st.integers(0, 99)), max_size=12),
)
def test_many_streams_at_once_are_the_same_streams(seed, names):
    """Seeds hashed side by side give the generators that NumPy seeds one by one, for seeds of any size."""
    streams = Streams(seed)
    together, alone = streams.many(names), [streams(*name) for name in names]

    assert [rng.bit_generator.state for rng in together] == [rng.bit_generator.state for rng in alone]
    assert [rng.permutation(20).tolist() for rng in together] == [rng.permutation(20).tolist() for rng in alone]


def test_a_scene_seed_rules_the_scene_alone():
    """Placement, data and shadowing follow it, also in cells of their own; fading, batches and mobility do not."""
    one, other, both = Streams(1, 7), Streams(2, 7), Streams(7)
    for name in [("placement",), ("init",), ("groups",), ("shadowing", "cell"), ("waves", "los", 2)]:
        assert one.key(*name) == other.key(*name) == both.key(*name)
        assert one(*name).random() == both(*name).random()
    for name in [("batch", 3, 12), ("fading", "uplink"), ("mobility",), ("groups", 3), ("cohort", 0)]:
        assert one.key(*name) == Streams(1).key(*name) != other.key(*name)
        assert one(*name).random() == Streams(1)(*name).random()


@pytest.mark.parametrize("name", ["exp", "sin", "cos"])
def test_functions_of_arrays_have_the_bits_of_the_c_library(name: str) -> None:
    """Each element is what `math` makes of it, whichever instructions the processor has."""
    x = np.random.default_rng(0).normal(0.0, 30.0, 10_000)
    assert getattr(arrays, name)(x).tolist() == list(map(getattr(math, name), x.tolist()))

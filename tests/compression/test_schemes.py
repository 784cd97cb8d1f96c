"""Compression: schemes and packing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fednet_emu.compression import COMPRESSIONS
from fednet_emu.compression.base import Compression, Message
from fednet_emu.compression.chain import Chain
from fednet_emu.compression.rounding import BFloat16, Float16, Qsgd, Sign, Uniform, omega_bit
from fednet_emu.compression.sparse import RandomK, TopK
from fednet_emu.kernel.streams import Streams
from tests.compression import packing as by_hand

UNBIASED = [Qsgd(levels=4), Uniform(bits=2), RandomK(share=0.3), Chain(stages=(RandomK(share=0.5), Qsgd(levels=2)))]
FED_BACK = [
    TopK(share=0.1),
    RandomK(share=0.1, error_feedback=True),
    Sign(),
    Chain(stages=(TopK(share=0.1), Sign())),
    Chain(stages=(TopK(share=0.5), Qsgd(levels=1))),
    Chain(stages=(RandomK(share=0.5, error_feedback=True), Uniform(bits=2))),
]
VECTORS = arrays(np.float32, st.integers(1, 40), elements=st.floats(-8, 8, width=32))


def reads(scheme: Compression, v: torch.Tensor, times: int = 4000) -> torch.Tensor:
    """What receivers read of a vector [n], many times, [times, n]."""
    rng = Streams(5)("reads")
    return torch.stack([scheme.compress(v, rng).read for _ in range(times)]).double()


def test_every_kind_is_there() -> None:
    """The table has exactly these, and each one's default settings."""
    expected = ["none", "qsgd", "top-k", "random-k", "sign", "uniform", "float16", "bfloat16", "chain"]

    assert list(COMPRESSIONS) == expected
    assert all(COMPRESSIONS[kind]().kind == kind for kind in expected)


@pytest.mark.parametrize("scheme", UNBIASED, ids=repr)
def test_random_rounding_keeps_the_mean(scheme: Compression) -> None:
    """The mean of 4,000 readings is within five standard errors of every entry, and the variance within the bound."""
    v = vector(60, 1)
    found = reads(scheme, v)
    error = (found.mean(0) - v).abs() / (found.std(0) / math.sqrt(len(found)) + 1e-6)
    relative = float((found - v).square().sum(1).mean() / v.square().sum())

    assert error.max() < 5
    assert 0 < relative <= 1.02 * (scheme.growth(60) - 1)  # which random-k attains


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_growth_of_uniform_rounding_is_nearly_attained(bits: int) -> None:
    """Of 1, -1 and zeros between two levels the variance is (n - 2) / (2 (2^b - 1)^2), close below the bound."""
    scheme, v = Uniform(bits=bits), torch.tensor([1.0, -1.0, *[0.0] * 198])
    relative = float((reads(scheme, v) - v).square().sum(1).mean() / v.square().sum())

    assert relative == pytest.approx(198 / (2 * (2**bits - 1) ** 2), rel=1e-3)
    assert relative < scheme.growth(200) - 1 < 1.02 * relative


def test_the_variance_of_qsgd_is_exact() -> None:
    """It is norm^2 / s^2 times the sum of p (1 - p), with the fractions p of s |v| / norm."""
    v, s = vector(50, 2), 3
    norm = float(v.double().norm())
    p = (v.double().abs() * s / norm) % 1
    exact = float(norm**2 / s**2 * (p * (1 - p)).sum())

    assert float((reads(Qsgd(levels=s), v) - v).square().sum(1).mean()) == pytest.approx(exact, rel=0.03)


def test_the_figures_of_a_gaussian_vector() -> None:
    """With n = 1000, s = 4: relative variance 5.3, bound 7.9. The top 5 % leave 0.721 of the energy, bound 0.95.

    The latter is 1 - 2 (z phi(z) + 0.025) with z = 1.960, the quantile 0.975, where the density phi(z) is 0.0584.
    """
    variance, left = [], []
    for seed in range(200):
        v = vector(1000, seed)
        v2 = float(v.square().sum())
        variance.append(float((Qsgd(levels=4).compress(v, Streams(seed)("q")).read - v).square().sum()) / v2)
        left.append(float((v - TopK(share=0.05).compress(v, Streams(0)("k")).read).square().sum()) / v2)

    assert np.mean(variance) == pytest.approx(5.3, abs=0.1)
    assert Qsgd(levels=4).growth(1000) - 1 == pytest.approx(7.9, abs=0.01)
    assert np.mean(left) == pytest.approx(1 - 2 * (1.95996 * 0.058445 + 0.025), abs=0.003)
    assert max(left) <= 0.95


@given(VECTORS, st.floats(0.01, 1))
def test_top_k_is_a_contraction(v: np.ndarray, share: float) -> None:
    """What is left has at most 1 - k/n of the energy, and nothing sent is smaller than anything left."""
    x, scheme = torch.from_numpy(v), TopK(share=share)
    read = scheme.compress(x, Streams(0)("k")).read
    kept = scheme.kept(len(x))

    assert float((x - read).square().sum()) <= (1 - kept / len(x)) * float(x.square().sum()) * (1 + 1e-5) + 1e-6
    assert float((x - read).abs().max()) <= sorted(x.abs().tolist())[-kept]


@given(VECTORS)
def test_sign_is_a_contraction(v: np.ndarray) -> None:
    """What is left is |v|^2 - |v|_1^2 / n."""
    x = torch.from_numpy(v).double()
    left = x - Sign().compress(torch.from_numpy(v), Streams(0)("s")).read
    expected = float(x.square().sum() - x.abs().sum() ** 2 / len(x))

    assert float(left.square().sum()) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@given(VECTORS, st.sampled_from([Qsgd(levels=1), Qsgd(levels=15), Uniform(bits=2), Uniform(bits=8)]), st.integers(0, 9))
def test_rounding_stays_next_to_the_number(v: np.ndarray, scheme: Compression, seed: int) -> None:
    """Whatever is drawn, an entry is read as one of the two levels next to it."""
    x = torch.from_numpy(v)
    read = scheme.compress(x, Streams(seed)("r")).read
    if isinstance(scheme, Qsgd):
        step = float(x.norm()) / scheme.levels
    else:
        step = float(x.max() - x.min()) / (2**scheme.bits - 1)

    assert float((read - x).abs().max()) <= step * (1 + 1e-4) + 1e-6


def test_a_vector_next_to_nothing_is_read_as_nothing() -> None:
    """The levels over its norm are no number of single precision, and an infinite factor makes no number of a zero."""
    for least in (1e-45, 1e-40, 1e-36):
        read = Qsgd(levels=1).compress(torch.tensor([0.0, least]), Streams(0)("q")).read
        assert read.tolist() == [0.0, 0.0]
    assert Qsgd(levels=1).compress(torch.tensor([0.0, 1e-30]), Streams(0)("q")).read[1] == pytest.approx(1e-30)


def test_short_floats() -> None:
    """NumPy's half precision, but saturated; bfloat16 has the first 16 bits of single precision, rounded."""
    v = torch.cat([vector(1000) * 10.0 ** torch.arange(-3, 2).repeat(200), torch.tensor([1e6, -1e9])])
    half = Float16().compress(v, Streams(0)("f")).read
    brain = BFloat16().compress(v, Streams(0)("f")).read
    with np.errstate(over="ignore"):
        expected = np.clip(v.numpy().astype(np.float16).astype(np.float32), -65504, 65504)

    assert (half.numpy() == expected).all()
    assert ((brain - v).abs() <= 2.0**-8 * v.abs()).all()
    assert (brain.numpy().view(np.uint32) & 0xFFFF == 0).all()
    assert Float16().bit(1002) == BFloat16().bit(1002) == 16 * 1002


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_nothing_stays_nothing(kind: str) -> None:
    """A vector of zeros is read as zeros, and the input is left as it was."""
    zero, v = torch.zeros(7), vector(7)
    before = v.clone()
    scheme = COMPRESSIONS[kind]()
    scheme.compress(v, Streams(0)("z"))

    assert torch.equal(scheme.compress(zero, Streams(0)("z")).read, zero)
    assert torch.equal(v, before)


@pytest.mark.parametrize("scheme", FED_BACK, ids=repr)
def test_what_is_fed_back_is_contracted(scheme: Compression) -> None:
    """Divided by its growth, a scheme leaves less than everything on average: error feedback needs no more."""
    v = vector(40, 3)
    left = (reads(scheme, v, 500) / scheme.growth(40) - v).square().sum(1).mean() / v.square().sum()

    assert scheme.feeds_back
    assert 0 < float(left) < 0.99


def vector(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(n).astype(np.float32))


def norm_of(v: torch.Tensor) -> np.float32:
    return np.float32(np.sqrt((v.double().numpy() ** 2).sum()))


def close(found: np.ndarray, message: Message) -> bool:
    """Whether an unpacked vector is what the receiver is said to read."""
    return bool(np.allclose(found, message.read.numpy(), rtol=1e-5, atol=1e-6))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 5))
def test_qsgd(n: int, s: int, seed: int) -> None:
    """Norm, signs and levels."""
    v = vector(n, seed)
    scheme = Qsgd(levels=s)
    message = scheme.compress(v, Streams(seed)("q"))
    text = by_hand.pack_qsgd(message.read.numpy(), norm_of(v), s)

    assert len(text) == message.bit == scheme.bit(n)
    assert close(by_hand.unpack_qsgd(iter(text), n, s), message)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 5))
def test_qsgd_in_elias_codes(n: int, s: int, seed: int) -> None:
    """A bit for the coding and the shorter of the two; the bound is never passed."""
    v, scheme = vector(n, seed), Qsgd(levels=s, coding="elias")
    message = scheme.compress(v, Streams(seed)("q"))
    read, norm = message.read.numpy(), norm_of(v)
    sparse, fixed = by_hand.pack_elias(read, norm, s), by_hand.pack_qsgd(read, norm, s)

    assert message.bit == 1 + min(len(sparse), len(fixed)) <= scheme.bit(n) == 1 + len(fixed)
    assert close(by_hand.unpack_elias(iter(sparse), n, s), message)


def test_elias_is_shorter_for_sparse_levels() -> None:
    """A thousand entries in one level: QSGD's sparse regime, in which sqrt(n) entries or so are not zero."""
    message = Qsgd(levels=1, coding="elias").compress(vector(1000), Streams(0)("q"))

    assert message.bit < Qsgd(levels=1).bit(1000) / 3


def test_the_omega_code() -> None:
    """Lengths are those of the code spelt out, which a reader ends by itself."""
    numbers = [1, 2, 3, 4, 7, 8, 15, 16, 100, 1000, 2**20, 2**31]
    text = "".join(map(by_hand.omega, numbers))
    bits = iter(text)

    assert omega_bit(np.array(numbers)).tolist() == [len(by_hand.omega(number)) for number in numbers]
    assert [by_hand.take_omega(bits) for _ in numbers] == numbers
    assert by_hand.omega(16) == "10100100000"


@given(st.integers(1, 300), st.floats(0.001, 1), st.integers(0, 5))
def test_top_k(n: int, share: float, seed: int) -> None:
    """Places and entries."""
    v, scheme = vector(n, seed), TopK(share=share)
    message = scheme.compress(v, Streams(seed)("k"))
    k = scheme.kept(n)
    text = by_hand.pack_sparse(message.read.numpy(), k, by_hand.pack_singles)

    assert len(text) == message.bit == scheme.bit(n)
    assert (by_hand.unpack_sparse(iter(text), n, k, by_hand.unpack_singles) == message.read.numpy()).all()


def test_random_k_needs_a_seed_only() -> None:
    """The receiver finds the places by the seed that was sent, and multiplies by n / k."""
    v, scheme = vector(100), RandomK(share=0.2)
    message = scheme.compress(v, Streams(3)("k"))
    seed = int(Streams(3)("k").integers(2**32))
    places = np.sort(np.random.Generator(np.random.PCG64(seed)).choice(100, 20, replace=False, shuffle=False))
    text = by_hand.binary(seed, 32) + by_hand.pack_singles(v[places].numpy())
    expected = np.zeros(100, np.float32)
    expected[places] = 5 * v[places].numpy()

    assert len(text) == message.bit == scheme.bit(100) == 32 + 20 * 32
    assert np.allclose(message.read.numpy(), expected)


@given(st.integers(1, 300), st.integers(0, 5))
def test_sign(n: int, seed: int) -> None:
    """A magnitude and signs; zero is positive."""
    v = vector(n, seed)
    v[0] = 0.0
    message = Sign().compress(v, Streams(seed)("s"))
    text = by_hand.pack_signs(message.read.numpy())

    assert len(text) == message.bit == Sign().bit(n)
    assert close(by_hand.unpack_signs(iter(text), n), message)
    assert message.read[0] >= 0
    assert Sign(magnitude=0.5, error_feedback=False).bit(n) == n


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 333])
def test_uniform(n: int, bits: int) -> None:
    """The range and a code for each entry."""
    v, scheme = vector(n), Uniform(bits=bits)
    message = scheme.compress(v, Streams(0)("u"))
    text = by_hand.pack_uniform(message.read.numpy(), float(v.min()), float(v.max()), bits)

    assert len(text) == message.bit == scheme.bit(n)
    assert close(by_hand.unpack_uniform(iter(text), n, bits), message)


def test_a_chain_writes_the_entries_that_are_left() -> None:
    """Top-k and QSGD: places, then norm, signs and levels of the k entries; sparse ternary compression likewise."""
    v = vector(500)
    scheme = Chain(stages=(TopK(share=0.1), Qsgd(levels=7)))
    message = scheme.compress(v, Streams(0)("c"))
    kept = v[v.abs().topk(50).indices]

    def values(entries: np.ndarray) -> str:
        return by_hand.pack_qsgd(entries, norm_of(kept), 7)

    text = by_hand.pack_sparse(message.read.numpy(), 50, values)
    found = by_hand.unpack_sparse(iter(text), 500, 50, lambda bits, k: by_hand.unpack_qsgd(bits, k, 7))
    ternary = Chain(stages=(TopK(share=0.1), Sign())).compress(v, Streams(0)("c"))
    signs = by_hand.pack_sparse(ternary.read.numpy(), 50, by_hand.pack_signs)

    assert len(text) == message.bit == scheme.bit(500) == 50 * 9 + 32 + 50 * 4
    assert close(found, message)
    assert len(signs) == ternary.bit == 50 * 9 + 32 + 50
    assert sorted(set(ternary.read.abs().tolist())) == [0.0, pytest.approx(float(kept.abs().mean()))]

"""Bits are those of real messages: what is read, packed by hand, takes as many bits and unpacks to the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.compression.base import Message
from fednet_emu.compression.chain import Chain
from fednet_emu.compression.rounding import Qsgd, Sign, Uniform, omega_bit
from fednet_emu.compression.sparse import RandomK, TopK
from fednet_emu.kernel.streams import Streams
from tests.compression import packing as by_hand


def vector(n: int, seed: int = 0) -> torch.Tensor:
    """A Gaussian vector [n] of single precision."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(n).astype(np.float32))


def norm_of(v: torch.Tensor) -> np.float32:
    """The norm in single precision."""
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

"""Products of stacked matrices: the same numbers from whichever library, and nobody else's threads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.products import add_product, product
from fednet_emu.learning.graph.engine import Engine
from tests.learning.results import results_of

SIZES = st.integers(1, 40)


def stack(*shape, dtype=torch.float64):
    """Random matrices whose rows are pieces of longer ones, as the weights of a layer are."""
    *lead, columns = shape
    return torch.randn(*lead, columns + 3, dtype=dtype, generator=torch.Generator().manual_seed(columns))[..., :columns]


@given(count=st.integers(0, 5), n=SIZES, k=SIZES, m=SIZES, turned=st.booleans())
def test_products_are_those_of_einsum(count, n, k, m, turned):
    """Every matrix of a stack is multiplied with its own, however it lies in memory."""
    a = stack(count, k, n).transpose(1, 2) if turned else stack(count, n, k)
    b, total = stack(count, k, m), stack(count, n, m)
    expected = torch.einsum("aij,ajk->aik", a, b)

    assert torch.allclose(product(a, b), expected, rtol=1e-12, atol=1e-12)
    before = total.clone()
    add_product(total, a, b)
    assert torch.allclose(total, before + expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", [100, 101])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_library_makes_no_difference_to_the_numbers(m, dtype):
    """On both sides of the size at which the library changes, and in a type that NumPy does not have."""
    a, b = stack(2, 100, 100, dtype=dtype), stack(2, 100, m, dtype=dtype)
    scale = torch.bmm(a.double().abs(), b.double().abs())
    error = (product(a, b).double() - torch.bmm(a.double(), b.double())).abs() / scale

    assert error.max() < 4 * torch.finfo(dtype).eps


def test_numbers_that_are_not_finite_pass_without_a_word():
    """A job that diverges is told so by its engine, not by a warning of NumPy's."""
    infinite = torch.full((1, 2, 2), torch.inf)

    assert product(infinite, -infinite).eq(-torch.inf).all()
    assert product(infinite, torch.tensor([[[1.0], [-1.0]]])).isnan().all()


def test_blas_has_one_thread_while_jobs_run():
    """Threads that train do not start threads of NumPy's, and the caller gets back what he had."""
    blas = ThreadpoolController().select(user_api="blas")
    seen = []

    class Looking(Engine):
        def run(self, jobs):
            seen.append({library["num_threads"] for library in blas.info()})
            yield jobs[0], "trained"

    with blas.limit(limits=2):
        assert results_of(SpreadEngine([Looking()]), ["a job"]) == ["trained"]
        after = {library["num_threads"] for library in blas.info()}

    assert seen == [{1}]
    assert after == {2}

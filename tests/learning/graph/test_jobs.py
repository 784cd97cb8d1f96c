import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fednet_emu.errors import Diverged, ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.engine import checked_result
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.grouping import group_by_shape
from fednet_emu.learning.graph.jobs import ResolvedJob, SgdPlan, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel
from tests.quick import examples

MODEL = FlatModel(nn.Linear(2, 3), "cross-entropy", (2,))
DATA = TrainData(torch.zeros(200, 2), torch.zeros(200, dtype=torch.int64))
PARAMS = Graph(None).constant(MODEL.initial())


def job(indices: object, key: object = "a", **plan: object) -> TrainJob:
    return TrainJob(MODEL, DATA, indices, PARAMS, SgdPlan(lr=0.1, **plan), Streams(0), (key,), "dev-3, round 12")


PLANS = st.builds(
    lambda batch, count, by_steps: {"batch_size": batch, "steps" if by_steps else "epochs": count},
    st.none() | st.integers(1, 12),
    st.integers(1, 7),
    st.booleans(),
)


@examples(60)
@given(plan=PLANS, n_samples=st.integers(1, 30))
def test_counts_are_known_without_drawing(plan, n_samples):
    """The numbers of steps and samples that timing uses are those of the batches that are drawn."""
    batches = job(slice(0, n_samples), **plan).batches()

    assert len(batches.index) == SgdPlan(lr=0.1, **plan).n_steps(n_samples)
    assert batches.count.min() == SgdPlan(lr=0.1, **plan).min_batch(n_samples)
    assert batches.count.sum() == SgdPlan(lr=0.1, **plan).n_samples_processed(n_samples)


@examples(60)
@given(plan=PLANS, rows=st.lists(st.integers(0, 199), min_size=1, max_size=30, unique=True))
def test_every_epoch_uses_every_sample_once(plan, rows):
    """Batches partition the device's samples anew in each epoch, and filled places repeat the device's own rows."""
    batches = job(np.array(rows), **plan).batches()
    true_rows = [index[:count] for index, count in zip(batches.index, batches.count, strict=True)]
    sequence = np.concatenate(true_rows)

    for start in range(0, len(sequence) - len(rows) + 1, len(rows)):
        assert sorted(sequence[start : start + len(rows)]) == sorted(rows)
    assert set(sequence[-(len(sequence) % len(rows)) :]) <= set(rows)
    assert np.isin(batches.index, rows).all()


def test_batches_depend_on_the_key_only():
    """Another job drawn in between shifts nothing; another key draws other batches."""
    first = job(slice(0, 100), "a", batch_size=10, epochs=2).batches().index
    other = job(slice(0, 100), "b", batch_size=10, epochs=2).batches().index
    again = job(slice(0, 100), "a", batch_size=10, epochs=2).batches().index

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_epochs_are_reshuffled():
    """Two epochs visit the samples in different orders."""
    index = job(slice(0, 100), batch_size=10, epochs=2).batches().index

    assert not np.array_equal(index[:10], index[10:])


def test_full_batches_are_not_shuffled():
    """A batch that holds all samples keeps their order, whether it was asked for or the device has so few."""
    assert job(slice(10, 14), steps=2).batches().index.tolist() == [[10, 11, 12, 13]] * 2
    assert job(slice(10, 14), batch_size=9, steps=2).batches().index.tolist() == [[10, 11, 12, 13]] * 2


def test_slices_count_like_arrays():
    """A slice names the rows that it selects, its end being cut at the end of the data."""
    assert job(slice(190, 300), steps=1).n_samples == 10
    assert job(slice(0, 10, 3), steps=1).rows().tolist() == [0, 3, 6, 9]


def test_all_problems_of_a_plan_are_reported():
    """Two wrong fields give two problems."""
    with pytest.raises(ScenarioError) as caught:
        SgdPlan(lr=-1.0, steps=1, batch_size=0)

    assert len(caught.value.problems) == 2


@examples(60)
@given(plan=PLANS, n_samples=st.integers(1, 30))
def test_without_ragged_batches_every_batch_is_full(plan, n_samples):
    """With `drop_last` an epoch has floor(n / width) batches of different samples, and timing counts just these."""
    plan = {**plan, "drop_last": True}
    made, batches = SgdPlan(lr=0.1, **plan), job(slice(0, n_samples), **plan).batches()
    per_epoch, width = made.steps_per_epoch(n_samples), made.batch_width(n_samples)

    assert (batches.count == width).all()
    assert made.min_batch(n_samples) == width
    assert len(batches.index) == made.n_steps(n_samples)
    assert batches.count.sum() == made.n_samples_processed(n_samples)
    assert per_epoch == n_samples // width
    assert len(set(batches.index[:per_epoch].ravel())) == min(len(batches.index), per_epoch) * width


def test_parameters_whose_sum_overflows_are_still_numbers():
    """Two of 3e38 add up to infinity in single precision, and each is finite; one infinite parameter is divergence."""
    large, losses = torch.tensor([3e38, 3e38]), torch.tensor([1.0, 3.0])

    result = checked_result(job(slice(0, 3), steps=2), losses, large)
    assert result.params is large
    assert result.loss == 2.0
    with pytest.raises(Diverged, match="dev-3, round 12: training diverges"):
        checked_result(job(slice(0, 3), steps=2), losses, torch.tensor([1.0, math.inf]))


def test_jobs_that_train_other_parameters_are_not_grouped():
    """A mask of the head and one of the body are two groups; jobs with the very same mask are one."""
    head, body = torch.tensor([True] * 6 + [False] * 3), torch.tensor([False] * 6 + [True] * 3)
    any_mask = job(slice(0, 3), steps=1)
    jobs = [replace(any_mask, mask=mask) for mask in (head, body, head, None)]
    resolved = [ResolvedJob(each, MODEL.initial(), 1.0, None, None, 0.0, None) for each in jobs]

    assert list(group_by_shape(resolved).values()) == [resolved[:3:2], resolved[1:2], resolved[3:]]

"""Training of a cohort as one record: the numbers of single jobs, to the last bit."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from fednet_emu.errors import AlgorithmError, Diverged
from fednet_emu.federation import average
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.engines.spread import SpreadEngine
from fednet_emu.learning.engines.stacks.batches import _drawn
from fednet_emu.learning.engines.workers.workers_engine import WorkersEngine
from fednet_emu.learning.graph.cohort import OWN, SHARED, CohortJob, Columns
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Momentum
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.graph.memory import Memory

SIZES = np.array([9, 30, 9, 16, 25, 4, 30, 12])
FIRST = np.cumsum(SIZES) - SIZES
DATA = TrainData(
    torch.randn(int(SIZES.sum()), 4, generator=torch.Generator().manual_seed(0)), torch.arange(int(SIZES.sum())) % 3
)
MODEL = FlatModel(nn.Linear(4, 3), "cross-entropy", (4,))
PLAN, STREAMS = SgdPlan(0.5, batch_size=8, epochs=2), Streams(3)
START, PULL = torch.linspace(-1, 1, MODEL.size), torch.linspace(0, 0.2, MODEL.size)
TERMS = {
    "plain": {},
    "a proximal term": {"prox": 0.3},
    "an anchor": {"prox": 0.3, "anchor": PULL},
    "a factor and a drift": {"scale": 0.5, "drift": PULL},
    "a mask": {"mask": (torch.arange(MODEL.size) % 2).float()},
}
ENGINES = {
    "batched": BatchedEngine,
    "two threads": lambda: SpreadEngine([RuleEngine(), RuleEngine()]),
    "two workers": lambda: WorkersEngine("by-rule", RuleEngine(), 2, at_once=True),
}


@pytest.fixture(autouse=True)
def _small_stacks_are_divided(monkeypatch):
    monkeypatch.setattr(batched, "WORTH_FLOP", 0)


def columns(plan=PLAN, streams=STREAMS):
    """Eight devices of 4 to 30 samples."""
    return Columns(MODEL, DATA, plan, streams, (5,), 5, np.arange(8), FIRST, SIZES)


def deferred(graph, terms):
    """Terms as values of a graph, but numbers and masks."""
    is_value = {name: isinstance(value, torch.Tensor) and name != "mask" for name, value in terms.items()}
    return {name: graph.constant(value) if is_value[name] else value for name, value in terms.items()}


def one_by_one(graph, w, terms, own=None, plan=PLAN):
    """The parameters after the same training as single jobs."""
    found = []
    for k, (first, n) in enumerate(zip(FIRST.tolist(), SIZES.tolist(), strict=True)):
        given = slice(first, first + n), w, plan, STREAMS, ("batch", k, 5), f"dev-{k}, round 6"
        found.append(graph.train(TrainJob(MODEL, DATA, *given, **terms, **(own(k) if own else {}))).params)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TERMS)
def test_a_cohort_comes_to_the_models_of_single_jobs(engine, name):
    """Parameters and numbers of all devices are equal to the last bit, and so is their mean."""
    found = []
    for in_columns in (True, False):
        graph = Graph(ENGINES[engine]())
        w, terms = graph.constant(START), deferred(graph, TERMS[name])
        cohort = CohortJob(columns(), w, terms)
        models = graph.train_cohort(cohort) if in_columns else one_by_one(graph, w, terms)
        again = [graph.call(torch.clone, model) for model in models]
        mean = graph.accumulate(average, models, w, SIZES.tolist())
        value = graph.read(mean)
        found.append(([graph.read(model) for model in again], value, [model.number for model in models]))
        assert graph.statistics.jobs == 8
        assert graph.statistics.wavefronts == 1
        assert graph._pending_byte == 0
        if engine == "two workers":
            assert 0 < graph.engine.statistics["received_byte"] <= 8 * START.nbytes
        graph.close()
    (models, mean, numbers), (expected, expected_mean, expected_numbers) = found

    assert all(map(torch.equal, models, expected))
    assert torch.equal(mean, expected_mean)
    assert numbers == expected_numbers


def test_terms_of_each_device_are_numbered_before_its_training():
    """A linear term for each device, made one after the other: numbers and models are those of single jobs."""
    found = []
    for in_columns in (True, False):
        graph = Graph(BatchedEngine())
        w = graph.constant(START)

        def own(k, graph=graph, w=w):
            return {"linear": graph.call(torch.mul, w, 0.1 * k)}

        models = graph.train_cohort(CohortJob(columns(), w), own) if in_columns else one_by_one(graph, w, {}, own)
        found.append([(model.number, graph.read(model)) for model in models])

    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in zip(*found, strict=True))


def test_a_term_that_no_device_may_have_for_itself_is_refused():
    """A factor of its own for each device is a generator's business."""
    graph = Graph(BatchedEngine())
    with pytest.raises(AlgorithmError, match="gives each device terms of its own, got scale; give anchor, drift, lin"):
        graph.train_cohort(CohortJob(columns(), graph.constant(START)), lambda k: {"scale": graph.constant(1.0)})


def test_devices_whose_models_are_of_no_use_are_not_trained():
    """Of eight devices the models of three are kept: three jobs, with the parameters that they have alone."""
    graph = Graph(BatchedEngine())
    kept = graph.train_cohort(CohortJob(columns(), graph.constant(START)))[1:4]
    found = [graph.read(model) for model in kept]
    other = Graph(BatchedEngine())
    expected = one_by_one(other, other.constant(START), {})[1:4]

    assert graph.statistics.jobs == 3
    assert all(torch.equal(a, other.read(b)) for a, b in zip(found, expected, strict=True))


def test_cohorts_that_are_ready_together_are_one_wavefront():
    """Two cohorts and a single job, none read before all are made: one wavefront of 17 jobs, with equal models."""
    found = []
    for in_columns in (True, False):
        graph = Graph(BatchedEngine())
        starts, models = [graph.constant(START), graph.constant(PULL)], []
        for w in starts:
            models += graph.train_cohort(CohortJob(columns(), w)) if in_columns else one_by_one(graph, w, {})
        models.append(
            graph.train(TrainJob(MODEL, DATA, slice(3, 20), starts[0], PLAN, STREAMS, ("x",), "dev-9")).params
        )
        found.append([graph.read(model) for model in models])
        assert (graph.statistics.wavefronts, graph.statistics.jobs) == (1, 17)

    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cohort_that_diverges_names_the_device_and_stays_pending(engine):
    """The error of the job is raised, and raised again by another read."""
    graph = Graph(ENGINES[engine]())
    models = graph.train_cohort(CohortJob(columns(), graph.constant(START.clone().fill_(float("nan")))))
    for _ in range(2):
        with pytest.raises(Diverged, match=r"dev-\d, round 6: training diverges"):
            graph.read(models[0])
    graph.close()


def test_a_model_of_another_size_is_refused():
    """The function that has made the start has returned too few numbers."""
    graph = Graph(BatchedEngine())
    w = graph.call(torch.clone, graph.constant(START[:5]), size=MODEL.size)
    with pytest.raises(AlgorithmError, match=r"training \(dev-0, round 6\): starts from 5 numbers"):
        graph.read(graph.train_cohort(CohortJob(columns(), w))[0])


def two_rounds(graph, *, in_columns, begins=False):
    """The means of two rounds, of which the second is read, and the models of the second."""
    w = graph.constant(START)
    means, kept = [], []
    for _ in range(2):
        models = graph.train_cohort(CohortJob(columns(), w)) if in_columns else one_by_one(graph, w, {})
        kept = [graph.call(torch.clone, model) for model in models]
        w = graph.accumulate(average, models, w, SIZES.tolist())
        means.append(w)
        if begins:
            graph.begin_wavefront()
    return means, kept, graph.recall("read", [w], lambda: graph.read(w))


WAYS = [("batched", *ways) for ways in product([True, False], repeat=3)]


@pytest.mark.parametrize(
    ("engine", "first", "second", "snapshot"),
    [*WAYS, ("two threads", True, False, False), ("two workers", True, False, False)],
)
def test_what_is_known_of_a_cohort_is_known_of_its_single_jobs(engine, first, second, snapshot):
    """Learnt in columns or job by job, and asked for in either way: nothing is trained until something else is read.

    That is then computed in the same stacks, to the same last bit.
    """
    memory = Memory()
    graph = Graph(ENGINES[engine](), program=memory.program())
    _, models, mean = two_rounds(graph, in_columns=first, begins=True)
    expected = [graph.read(model) for model in models]
    if snapshot:
        memory.keep(graph)
    again = Graph(ENGINES[engine](), program=memory.again().program())
    _, put_off, found = two_rounds(again, in_columns=second)

    assert torch.equal(found, mean)
    assert again.statistics.trained == 0
    assert again.statistics.jobs == graph.statistics.jobs == 16
    assert all(torch.equal(again.read(model), its) for model, its in zip(put_off, expected, strict=True))
    assert again.statistics.trained == 16 * (not snapshot)
    graph.close()
    again.close()


def test_cohorts_in_other_company_or_order_are_another_program():
    """Models that are of no use, and a second cohort in the wavefront, change what is trained together."""

    def rolling(*, used=8, others=0):
        graph = Graph(BatchedEngine(), program=Memory().program())
        made = [graph.train_cohort(CohortJob(columns(), graph.constant(START)))[:used]]
        made += [graph.train_cohort(CohortJob(columns(), graph.constant(PULL))) for _ in range(others)]
        graph.flush()
        return graph.program.rolling

    assert rolling() == rolling()
    assert len({rolling(), rolling(used=7), rolling(others=1), rolling(others=2)}) == 4


OTHER_COLUMNS = {
    "model": FlatModel(nn.Linear(4, 3, bias=False), "cross-entropy", (4,)),
    "data": TrainData(DATA.x, DATA.y.flip(0)),
    "plan": SgdPlan(0.5, batch_size=8, epochs=3),
    "streams": Streams(4),
    "key": (6,),
    "device": np.arange(1, 9),
    "first": FIRST + 1,
    "n_samples": SIZES - 1,
}
OTHER_TERMS = {
    "scale": 0.5,
    "linear": PULL,
    "drift": PULL,
    "prox": 0.1,
    "anchor": PULL,
    "mask": torch.zeros(MODEL.size),
    "base": PULL,
}


def digests(job=None, *, own=None, start=START, **terms):
    """The digests of the models of a cohort."""
    graph = Graph(BatchedEngine(), program=Memory().program())
    cohort = CohortJob(job or columns(), graph.constant(start), deferred(graph, terms))
    made = graph.train_cohort(cohort, own and (lambda k: {own: graph.constant(PULL * (k + 2))}))
    return [model._digest for model in made]


def test_every_field_of_a_cohort_is_a_part_of_the_digests_of_its_models():
    """Columns, start, terms for all and terms of each; the round `t` is a mere name, and parameters come later."""
    said = {item.name for item in fields(Columns)} - {"t", "params", "terms", "own"}
    assert said == OTHER_COLUMNS.keys()
    assert OTHER_TERMS.keys() == SHARED
    assert {item.name for item in fields(CohortJob)} == {"columns", "params", "terms", "own", "results", "begun"}
    changed = [digests(replace(columns(), **{name: value})) for name, value in OTHER_COLUMNS.items()]
    changed += [digests(**{name: value}) for name, value in OTHER_TERMS.items()]
    changed += [digests(own=name) for name in OWN]
    changed.append(digests(start=START + 1e-7))

    assert digests() == digests()
    assert len({one for its in (digests(), *changed) for one in its}) == 8 * (1 + len(changed))


@pytest.mark.parametrize("name", TERMS)
def test_a_device_of_a_cohort_has_the_digest_of_its_single_job(name):
    """With and without terms."""
    found = []
    for in_columns in (True, False):
        graph = Graph(BatchedEngine(), program=Memory().program())
        w, terms = graph.constant(START), deferred(graph, TERMS[name])
        cohort = CohortJob(columns(), w, terms)
        models = graph.train_cohort(cohort) if in_columns else one_by_one(graph, w, terms)
        found.append([model._digest for model in models])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "plan", [PLAN, SgdPlan(0.5, batch_size=8, steps=3), SgdPlan(0.1, optimizer=Momentum(), epochs=1)]
)
def test_the_stacks_of_a_cohort_are_those_of_its_jobs(plan):
    """By shape, then by steps and rows, as single jobs are cut."""
    known = columns(plan)
    jobs, found = known.jobs(), BatchedEngine().cut_cohort(known)
    place_of = {resolved: place for place, resolved in enumerate(jobs)}

    assert found == [[place_of[resolved] for resolved in stack] for stack in BatchedEngine().cut(jobs)]
    assert sorted(place for stack in found for place in stack) == list(range(8))


@pytest.mark.parametrize("n", [9, 16, 25])
@pytest.mark.parametrize("steps", [{"epochs": 1}, {"epochs": 3}, {"steps": 1}, {"steps": 2}, {"steps": 7}])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_of_equal_devices_are_those_that_each_draws(n, steps, drop_last):
    """Rows and counts for numbers of samples that batches of eight divide or do not."""
    plan = SgdPlan(0.1, batch_size=8, drop_last=drop_last, **steps)
    first = np.array([0, 40, 80])
    jobs = Columns(MODEL, DATA, plan, STREAMS, (1,), 1, np.arange(3), first, np.full(3, n)).jobs()
    index, count = _drawn(STREAMS, jobs, np.full(3, plan.n_steps(n)))
    for place, resolved in enumerate(jobs):
        batches = resolved.job.batches()
        assert (index[:, place] == batches.index).all()
        assert (count[:, place] == batches.count).all()

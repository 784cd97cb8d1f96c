"""Claims about the learning program: whatever changes a value changes its digest, and nothing else does."""

from __future__ import annotations

import operator
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednet_emu.federation.exchange import average
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph import program, spelling
from fednet_emu.learning.graph.augment import Rotation
from fednet_emu.learning.graph.dp_sgd import PrivateSgd
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.spelling import Speller, Unwritable
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.graph.memory import Memory
from tests.learning.graph.test_graph import HalvingEngine

PRIVATE = PrivateSgd(clip_norm=1, noise_multiplier=1)
X, Y = torch.arange(24.0).reshape(12, 2), torch.arange(12.0)


def flat(seed: int = 0, width: int = 2) -> FlatModel:
    """A linear model whose initial weights follow from a seed."""
    torch.manual_seed(seed)
    return FlatModel(torch.nn.Sequential(torch.nn.Linear(width, 1), torch.nn.Flatten(0)), "squared-error", (width,))


MODEL, DATA, PLAN, STREAMS = flat(), TrainData(X, Y), SgdPlan(0.1, 2, steps=3), Streams(1)


def spelled(value: Any) -> bytes:
    """The bytes of a value, as another run writes them."""
    return Speller().spelled(value)


def job_digest(**changes: Any) -> bytes:
    """The digest of a job with changed fields; arrays are copied, so that only their content is the same."""
    graph = Graph(HalvingEngine(), program=Memory().program())
    plain: dict[str, Any] = {
        "model": MODEL, "data": TrainData(X.clone(), Y.clone()), "indices": slice(0, 6), "plan": PLAN,
        "streams": Streams(1), "rng_key": ("batch", 3, 0), "label": "dev-3",
    }  # fmt: skip
    given = {name: graph.constant(its) if name in DEFERRED else its for name, its in changes.items()}
    start = given.pop("params") if "params" in given else graph.constant(torch.zeros(3))
    return graph.train(TrainJob(params=start, **{**plain, **given})).loss._digest


DEFERRED = {"params", "linear", "drift", "anchor", "targets", "base"}
ONE_OFF = torch.zeros(3).index_fill(0, torch.tensor([2]), 1e-45)
CHANGES: dict[str, list[Any]] = {
    "model": [flat(1)],
    "data": [TrainData(X + torch.eye(12, 2) * 1e-6, Y), TrainData(X, Y + (Y == 7) * 1e-6)],
    "indices": [slice(0, 5), slice(1, 6), np.arange(6), np.array([0, 1, 2, 3, 5, 4])],
    "params": [ONE_OFF],
    "plan": [replace(PLAN, lr=0.1000001), replace(PLAN, steps=4), replace(PLAN, batch_size=3),
             replace(PLAN, clip_norm=1.0), replace(PLAN, drop_last=True), replace(PLAN, private=PRIVATE)],
    "streams": [Streams(2)],
    "rng_key": [("batch", 4, 0), ("batch", 3, 1), ("batch", 3, 0, "x")],
    "scale": [0.5], "linear": [ONE_OFF], "drift": [ONE_OFF], "prox": [0.1], "anchor": [ONE_OFF], "l1": [0.1],
    "loss": [torch.nn.functional.l1_loss],
    "augment": [Rotation(), Rotation(max_degree=2)],
    "mask": [torch.ones(3), torch.tensor([1.0, 1.0, 0.0])],
    "squares": [True], "targets": [Y], "base": [ONE_OFF],
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(TrainJob) if field.init and field.name != "label"])
def test_every_field_of_a_job_is_a_part_of_its_digest(name: str) -> None:
    """Changed by one sample, one label, one index or one bit, the digest is another one; the label is a mere name."""
    found = [job_digest(), *(job_digest(**{name: change}) for change in CHANGES[name])]

    assert len(set(found)) == len(found)
    assert job_digest(label="another") == found[0] == job_digest()


@pytest.mark.parametrize("left_out", [*program._SHARED, *program.INPUTS[1:]])
def test_a_digest_that_leaves_something_out_is_noticed(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails for such a digest: with the field left out, two jobs that differ in it are one."""
    group, names = ("_shared", program._SHARED) if left_out in program._SHARED else ("_inputs", program.INPUTS[1:])
    monkeypatch.setattr(program, group, attrgetter(*(name for name in names if name != left_out)))

    assert job_digest(**{left_out: CHANGES[left_out][0]}) == job_digest()


class Scaled:
    """An object of the package's tests with state."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def times(self, x: Tensor) -> Tensor:
        """A method."""
        return x * self.factor


@pytest.fixture
def as_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the functions and classes of this module for those of an installed package."""
    monkeypatch.setattr(spelling, "SHIPPED", spelling.SHIPPED | {"tests"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Scaled(0.5).times, Scaled(0.9).times),
        (Scaled(torch.zeros(2)).times, Scaled(torch.tensor([0.0, -0.0])).times),
        (Scaled([1, {"a": 2}]).times, Scaled([1, {"a": 3}]).times),
        (Scaled((1,)).times, Scaled([1]).times),
        (partial(torch.add, alpha=1), partial(torch.add, alpha=2)),
        (partial(torch.add, alpha=1), partial(torch.sub, alpha=1)),
        (operator.add, operator.sub),
        (torch.add, torch.mul),
        (Tensor.sub, Tensor.add),
        (min, max),
        (attrgetter("a"), attrgetter("b")),
        (itemgetter(0), itemgetter(1)),
        (PLAN.batch_sizes, replace(PLAN, lr=0.2).batch_sizes),
        (1, 1.0),
        (1, True),
        ("1", 1),
        (np.float32(1), np.float64(1)),
        (np.zeros(2), np.zeros((1, 2))),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (["a", "b"], ["ab"]),
        ((("a",), "b"), ("a", ("b",))),
        ({"a": 1}, {"a": 2}),
    ],
)
@pytest.mark.usefixtures("as_package")
def test_functions_and_values_are_written_by_value(one: Any, other: Any) -> None:
    """What makes another value is written otherwise; an equal one made again is written alike."""
    assert spelled(one) != spelled(other)
    assert spelled(one) == spelled(one)
    if isinstance(getattr(one, "__self__", None), Scaled):
        assert spelled(one) == spelled(Scaled(one.__self__.factor).times)


def module_level(x: Tensor) -> Tensor:
    """A function of a module that no package has installed."""
    return x


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda x: x, "<lambda>"),
        (module_level, "module_level"),
        (Scaled(1).times, "Scaled"),
        (np.random.default_rng(0), "Generator"),
        (torch.Generator(), "Generator"),
        (Clock(), "Clock"),
        (Graph(None), "Graph"),
        (object(), "object"),
        (torch.eye(2).to_sparse(), "layout"),
        (np.array([object()]), "array of type object"),
        (print, None),
    ],
)
def test_what_cannot_be_written_is_named(value: Any, name: str | None) -> None:
    """Code of a script, generators of random numbers, and what changes while a run goes on."""
    if name is None:
        assert spelled(value)
        return
    with pytest.raises(Unwritable, match=name):
        spelled([value])


def test_a_tensor_that_is_modified_in_place_is_written_again() -> None:
    """A digest that is kept for an object is that of its content, also of views of it."""
    speller, tensor = Speller(), torch.zeros(4)
    before = speller.spelled(tensor), speller.spelled(tensor[1:])
    assert before == (speller.spelled(tensor), speller.spelled(tensor[1:]))
    tensor[2] = 1.0

    assert speller.spelled(tensor) != before[0]
    assert speller.spelled(tensor[1:]) != before[1]


def tree(graph: Graph, order: list[int]) -> dict[int, bytes]:
    """Digests of the averages of two trained models each, made in some order."""
    start, made = graph.constant(torch.zeros(3)), {}
    for number in order:
        jobs = [
            TrainJob(MODEL, DATA, slice(k, k + 4), start, PLAN, STREAMS, ("batch", k, number), f"dev-{k}")
            for k in range(2)
        ]
        parts = [graph.train(job).params for job in jobs]
        made[number] = graph.accumulate(average, parts, start, [1.0, number])._digest
    return made


def test_the_order_in_which_nodes_are_made_is_no_part_of_their_digests() -> None:
    """So a network that delivers in another order shares what it learns."""
    graphs = [Graph(HalvingEngine(), program=Memory().program()) for _ in range(2)]

    assert tree(graphs[0], [1, 2, 3]) == tree(graphs[1], [3, 1, 2])
    assert len(set(tree(graphs[0], [4, 5, 6]).values())) == 3


def test_the_jobs_of_a_wavefront_are_a_part_of_the_program() -> None:
    """Trained together or one after the other, in this order or that: other programs, as rounding may differ."""

    def program_of(*wavefronts: list[int]) -> bytes:
        graph = Graph(HalvingEngine(), program=Memory().program())
        start = graph.constant(torch.zeros(3))
        for devices in wavefronts:
            made = [
                graph.train(TrainJob(MODEL, DATA, slice(k, k + 4), start, PLAN, STREAMS, ("batch", k, 0), f"dev-{k}"))
                for k in devices
            ]
            graph.flush()
            del made
        assert graph.program is not None
        return graph.program.rolling

    found = [program_of([0, 1, 2]), program_of([0], [1, 2]), program_of([0, 1]), program_of([0, 1], [2])]
    assert len(set(found)) == 4
    assert program_of([2, 0, 1]) == found[0]


def test_the_same_job_asked_for_twice_is_two() -> None:
    """They may be trained in other company, and come to other last bits."""
    graph = Graph(HalvingEngine(), program=Memory().program())
    start = graph.constant(torch.zeros(3))
    made = [
        graph.train(TrainJob(MODEL, DATA, slice(0, 4), start, PLAN, STREAMS, ("batch", 0, 0), "dev-0"))
        for _ in range(3)
    ]

    assert len({trained.params._digest for trained in made}) == 3


def test_code_of_a_script_ends_what_is_shared_once(caplog: pytest.LogCaptureFixture) -> None:
    """From there on the program is that of this run alone, which the log says once; a run in its folder goes on."""
    caplog.set_level("INFO", "fednet_emu")

    def play(memory: Memory) -> list[float]:
        graph = Graph(HalvingEngine(), program=memory.program())
        w = graph.constant(1.0)
        values = []
        for _ in range(3):
            w = graph.call(lambda x: x + 1, w)
            values.append(graph.recall("read", [w], lambda w=w: graph.read(w)))
        return values

    memory = Memory()
    assert play(memory) == [2.0, 3.0, 4.0]
    assert memory.ended.endswith("<lambda>")
    assert caplog.text.count("learning is not shared from here on") == 1
    again = memory.again()
    assert play(again) == [2.0, 3.0, 4.0]
    assert len(again.found) == 3

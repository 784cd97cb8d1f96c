"""The learning program of a run, which is a digest of everything that has determined the results of training so far.

The digest of a node of the graph is computed from its function, the values of its arguments, and the digests of its
inputs. A value therefore has the same digest in every simulated network, and does not depend on the order in which
values are read. Rounding, however, depends on which jobs are trained together. A second digest, the rolling one,
therefore covers the jobs of all wavefronts so far, in order. Both digests together determine a value bit for bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import fields
from hashlib import blake2b
from operator import attrgetter, is_
from typing import Any, Protocol, final

from fednet_emu.learning.graph.cohort import CohortJob
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.jobs import TrainJob
from fednet_emu.learning.graph.spelling import DIGEST_BYTE, Speller, Unwritable, digest_of

LOG = logging.getLogger("fednet_emu")

INPUTS = ("params", "scale", "linear", "drift", "prox", "anchor", "targets", "base")
"""Names of the fields of a training job that may be deferred values."""
_SHARED = ("model", "data", "plan", "streams", "l1", "loss", "augment", "mask", "squares")
_EACH = ("indices", "rng_key")
_UNUSED = ("label", "n_samples", "first_row", "flop")
"""Fields that do not affect the result of a job: its name in messages, and fields that are derived from other
fields."""
assert {field.name for field in fields(TrainJob)} == {*INPUTS, *_SHARED, *_EACH, *_UNUSED}, "a field without a rule"

_shared, _inputs = attrgetter(*_SHARED), attrgetter(*INPUTS[1:])
_PLAIN_INPUTS = (1.0, None, None, 0.0, None, None, None)


def _digest_of_job(before: bytes, where: bytes, rng_key: tuple[Any, ...], after: bytes) -> bytes:
    return blake2b(b"%b%b%r%b" % (before, where, rng_key, after), digest_size=DIGEST_BYTE).digest()


class Memo(Protocol):
    """Interface of caches for computed values, such as models, stored under digests of the learning program."""

    @property
    def passed(self) -> Container[bytes]:
        """Digests that the learning programs of earlier runs have reached. The digests of this run are not included."""

    @property
    def snapshots(self) -> Container[bytes]:
        """Digests of the points in the learning program for which an earlier run has stored a snapshot."""

    def get(self, key: bytes) -> Any:
        """Return the value stored under `key`. Raise a `KeyError` if there is none."""

    def put(self, key: bytes, value: Any) -> None:
        """Store under `key` a value that the run has read."""

    def note(self, rolling: bytes) -> None:
        """Record that the learning program of the run has reached the digest `rolling`."""

    def load(self, rolling: bytes) -> dict[bytes, Any]:
        """Return the snapshot stored at the digest `rolling`: values by node digest; empty if it cannot be used."""

    def part_ways(self, name: str) -> None:
        """Record that values are no longer shared with other runs, because the object `name` cannot be serialised."""


@final
class Program:
    """The digests of the learning program of one run, as the run proceeds.

    `head` is the digest of the data, the model, the seed, the software and the host, and `memo` has the values cached
    by earlier runs and by this run. The bytes `own` distinguish this run from all others; they become part of the
    digest as soon as a value cannot be serialised. `ended` is the name of the first such value or function, or empty.
    `rolling` is the current digest, and `passed` the digest after the last wavefront (training jobs that run together).
    """

    def __init__(self, head: bytes, memo: Memo, own: bytes, speller: Speller | None = None) -> None:
        self.memo, self._own, self._speller = memo, own, speller or Speller()
        self.rolling = self.passed = head
        self.ended = ""
        self._unwritten = 0
        self._seen: set[bytes] = set()
        self._last: tuple[tuple[Any, ...], bytes] = ((), b"")
        memo.note(head)

    @property
    def is_known(self) -> bool:
        """Whether an earlier run has reached the current digest, so that the values of that run can be reused."""
        return self.rolling in self.memo.passed

    def constant(self, value: Any) -> bytes:
        return self._digest(lambda: digest_of(b"constant", self._speller.spelled(value)))

    def call(self, function: Callable[..., Any], args: Sequence[Any], parts: Sequence[Deferred] = ()) -> bytes:
        """Return the digest of the result of `function`, from its arguments and, in an accumulation, its inputs."""
        spelled = self._speller.spelled
        return self._digest(
            lambda: digest_of(spelled(function), spelled(tuple(args)), repr([part._digest for part in parts]).encode())
        )

    def job(self, job: TrainJob) -> bytes:
        """Return the digest of a training job; repeated equal jobs differ, so that they share no cached value."""
        try:
            before, after = self._shared(job)
            rows = job.indices
            where = b"%d:%d" % (rows.start, rows.stop) if type(rows) is slice else self._speller.spelled(rows)
            digest = _digest_of_job(before, where, job.rng_key, after)
        except Unwritable as problem:
            digest = self._unwritable(problem)
        return self._once(digest)

    def cohort(self, job: CohortJob) -> list[bytes]:
        """Return the digest of the training of each device in a cohort, which equals the digest of a single job."""
        try:
            before, after = self._shared(job.single(0))
        except Unwritable:
            before = b""
        if job.own or not before:
            return list(map(self.job, job.singles()))
        its = job.columns
        rows = zip(its.first.tolist(), (its.first + its.n_samples).tolist(), its.device.tolist(), strict=True)
        return [
            self._once(_digest_of_job(before, b"%d:%d" % (first, end), its.name_of_stream(device), after))
            for first, end, device in rows
        ]

    def _once(self, digest: bytes) -> bytes:
        while digest in self._seen:
            digest = digest_of(b"again", digest, self.rolling)
        self._seen.add(digest)
        return digest

    def _shared(self, job: TrainJob) -> tuple[bytes, bytes]:
        """Return two digests, which cover all fields of a job except its rows and the name of its random stream."""
        shared, more = _shared(job), _inputs(job)
        if not (self._last[0] and all(map(is_, shared, self._last[0]))):
            self._last = (shared, digest_of(*map(self._speller.spelled, shared)))
        return b"%b%r" % (self._last[1], job.params._digest), self._speller.spelled(
            more
        ) if more != _PLAIN_INPUTS else b""

    def key(self, what: Any, nodes: Sequence[Deferred]) -> bytes:
        """Return the cache key of a value that is computed from `nodes` and identified by `what`.

        The jobs that produce the values of the nodes must have been passed to `wavefront` before.
        """
        text = self._digest(lambda: self._speller.spelled(what))
        return digest_of(text, *(node._digest for node in nodes), self.rolling)

    def wavefront(self, jobs: Sequence[Deferred]) -> None:
        """Record that these jobs, each device of a cohort as one, are trained together, in this order."""
        self.rolling = digest_of(self.rolling, b"".join([job._digest[:DIGEST_BYTE] for job in jobs]))

    def over(self) -> None:
        self.passed = self.rolling
        self.memo.note(self.rolling)

    def _digest(self, make: Callable[[], bytes]) -> bytes:
        try:
            return make()
        except Unwritable as problem:
            return self._unwritable(problem)

    def _unwritable(self, problem: Unwritable) -> bytes:
        self._unwritten += 1
        self.end(str(problem))
        return digest_of(b"own", self._own, b"%d" % self._unwritten)

    def end(self, name: str) -> None:
        """Stop sharing cached values with other runs, because the value or function `name` cannot be serialised."""
        if not self.ended:
            self.ended = name
            LOG.info("learning is not shared from here on: %s cannot be written by value", name)
            self.rolling = self.passed = digest_of(self.rolling, b"own", self._own)
            self.memo.note(self.rolling)
            self.memo.part_ways(name)

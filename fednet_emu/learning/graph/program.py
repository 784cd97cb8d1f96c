"""The learning program of a run: a digest of everything that decides what is learnt, up to now.

A node's digest is made of its function, its arguments by value, and the digests of its inputs; so it is the same in
every network that asks for the same value, in whichever order. Rounding depends on the jobs that are trained together.
The rolling digest therefore lists the jobs of each wavefront, in their order. The digest of a node and the rolling
digest together determine a value to the last bit.
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
"""The fields of a job that may be deferred values."""
_SHARED = ("model", "data", "plan", "streams", "l1", "loss", "augment", "mask", "squares")
_EACH = ("indices", "rng_key")
_UNUSED = ("label", "n_samples", "first_row", "flop")
"""A name for messages, and what follows from the other fields."""
assert {field.name for field in fields(TrainJob)} == {*INPUTS, *_SHARED, *_EACH, *_UNUSED}, "a field without a rule"

_shared, _inputs = attrgetter(*_SHARED), attrgetter(*INPUTS[1:])
_PLAIN_INPUTS = (1.0, None, None, 0.0, None, None, None)


def _digest_of_job(before: bytes, where: bytes, rng_key: tuple[Any, ...], after: bytes) -> bytes:
    return blake2b(b"%b%b%r%b" % (before, where, rng_key, after), digest_size=DIGEST_BYTE).digest()


class Memo(Protocol):
    """What is known of learning programs."""

    @property
    def passed(self) -> Container[bytes]:
        """Rolling digests after which an earlier run has gone on; not those that this run notes."""

    @property
    def snapshots(self) -> Container[bytes]:
        """Rolling digests at which an earlier run has kept its values."""

    def get(self, key: bytes) -> Any:
        """What was read under this key; `KeyError` if that is not known."""

    def put(self, key: bytes, value: Any) -> None:
        """Keep what was read under this key."""

    def note(self, rolling: bytes) -> None:
        """Note that a run has gone on after this."""

    def load(self, rolling: bytes) -> dict[bytes, Any]:
        """The values of a snapshot by the digests of their nodes; none if it cannot be used."""

    def part_ways(self, name: str) -> None:
        """Note that nothing is shared from here on, because of this."""


@final
class Program:
    """The digests of one run.

    Args:
        head: a digest of the data, the model, the seed, the software and the host.
        memo: what is known, and where this run keeps what it learns.
        own: distinguishes this run from all others once its program cannot be written.

    Attributes:
        rolling: the digest of the program up to now.
        passed: that of the last wavefront that has ended.
        ended: what could not be written, if something could not.
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
        """Whether a run has come to this point and gone on."""
        return self.rolling in self.memo.passed

    def constant(self, value: Any) -> bytes:
        """The digest of a known value."""
        return self._digest(lambda: digest_of(b"constant", self._speller.spelled(value)))

    def call(self, function: Callable[..., Any], args: Sequence[Any], parts: Sequence[Deferred] = ()) -> bytes:
        """The digest of what a function makes of arguments, and of parts that it is sent one by one."""
        spelled = self._speller.spelled
        return self._digest(
            lambda: digest_of(spelled(function), spelled(tuple(args)), repr([part._digest for part in parts]).encode())
        )

    def job(self, job: TrainJob) -> bytes:
        """The digest of a training job, another one for each time that the same job is asked for."""
        try:
            before, after = self._shared(job)
            rows = job.indices
            where = b"%d:%d" % (rows.start, rows.stop) if type(rows) is slice else self._speller.spelled(rows)
            digest = _digest_of_job(before, where, job.rng_key, after)
        except Unwritable as problem:
            digest = self._unwritable(problem)
        return self._once(digest)

    def cohort(self, job: CohortJob) -> list[bytes]:
        """The digest of each device of a cohort, that of its training as a single job."""
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
        """All of a job but its rows and the name of its stream."""
        shared, more = _shared(job), _inputs(job)
        if not (self._last[0] and all(map(is_, shared, self._last[0]))):
            self._last = (shared, digest_of(*map(self._speller.spelled, shared)))
        return b"%b%r" % (self._last[1], job.params._digest), self._speller.spelled(
            more
        ) if more != _PLAIN_INPUTS else b""

    def key(self, what: Any, nodes: Sequence[Deferred]) -> bytes:
        """The key of what is read of nodes, in the way that `what` describes; only after `wavefront` of all of them."""
        text = self._digest(lambda: self._speller.spelled(what))
        return digest_of(text, *(node._digest for node in nodes), self.rolling)

    def wavefront(self, jobs: Sequence[Deferred]) -> None:
        """Note that these jobs are trained together, in this order; a device of a cohort is its single job."""
        self.rolling = digest_of(self.rolling, b"".join([job._digest[:DIGEST_BYTE] for job in jobs]))

    def over(self) -> None:
        """Note that the wavefront has ended, and the run goes on."""
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
        """Share nothing from here on, because this cannot be written by value."""
        if not self.ended:
            self.ended = name
            LOG.info("learning is not shared from here on: %s cannot be written by value", name)
            self.rolling = self.passed = digest_of(self.rolling, b"own", self._own)
            self.memo.note(self.rolling)
            self.memo.part_ways(name)

"""Replies and states of clients as plain values, which a checkpoint holds without code, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

_KINDS = {"metrics": MetricRecord, "config": ConfigRecord}


def plain(reply: Message) -> tuple[str, Any]:
    """A reply: its kind, and its records or its error."""
    if reply.has_content():
        return "content", records(reply.content)
    return "error", (int(reply.error.code), str(reply.error.reason or ""))


def reply_of(kept: Sequence[Any], message: Message) -> Message:
    """The reply that `plain` has turned into values, to the message that it answers."""
    kind, value = kept
    return Message(content_of(value) if kind == "content" else Error(*value), reply_to=message)


def records(content: RecordDict) -> list[Any]:
    """Records by their names: arrays as bytes, metrics and configurations as they are."""
    return [(name, *_record(record)) for name, record in content.items()]


def content_of(kept: Sequence[Any]) -> RecordDict:
    """The records that `records` has turned into values."""
    return RecordDict({name: _made(kind, value) for name, kind, value in kept})


def _record(record: Any) -> tuple[str, Any]:
    if isinstance(record, ArrayRecord):
        arrays = [
            (name, array.dtype, list(array.shape), array.stype, _bytes(array.data)) for name, array in record.items()
        ]
        return "arrays", arrays
    kind = "metrics" if isinstance(record, MetricRecord) else "config"
    return kind, [(key, _value(value)) for key, value in record.items()]


def _made(kind: str, value: Sequence[Any]) -> Any:
    if kind == "arrays":
        arrays = {
            name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=data.tobytes())
            for name, dtype, shape, stype, data in value
        }
        return ArrayRecord(arrays)
    return _KINDS[kind]({key: _restored(its) for key, its in value})


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def _value(value: Any) -> Any:
    """A value of a configuration; bytes, and lists of them, as arrays."""
    if isinstance(value, bytes):
        return _bytes(value)
    return list(map(_value, value)) if isinstance(value, list) else value


def _restored(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return list(map(_restored, value)) if isinstance(value, list) else value

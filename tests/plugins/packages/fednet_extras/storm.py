"""A fault with a reason of its own: one file, and one line among the entry points."""

from typing import ClassVar

from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.network.faults import Loss


class Storm(Loss):
    """A storm; nothing starts in it, and what is on the air is lost when it begins."""

    reason: ClassVar[str] = "storm"

    from_s: float
    to_s: float

    def until_ns(self, transfer, now_ns):
        if now_ns >= to_ns(self.to_s):
            return FOREVER_NS
        return max(now_ns, to_ns(self.from_s))

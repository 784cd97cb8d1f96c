"""Who is asked in a round: rules by turns, channels, estimated times, ages and losses, one paper per file."""

from fednet_emu.algorithms.selection.base import Seen, Selection, highest, weighted

__all__ = ["Seen", "Selection", "highest", "weighted"]

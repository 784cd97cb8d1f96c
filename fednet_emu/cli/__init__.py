"""The command line, the only place that prints."""

from fednet_emu.cli.app import main

__all__ = ["main"]

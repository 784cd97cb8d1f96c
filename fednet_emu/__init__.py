"""fednet_emu: a discrete-event network emulator for wireless federated learning."""

__version__ = "0.1.0"

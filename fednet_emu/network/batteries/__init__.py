"""Batteries of the devices: what charges them, what draws from them, and when one is empty."""

from fednet_emu.network.batteries.batteries import Batteries
from fednet_emu.network.batteries.battery import COMPUTING, IDLE, RECEIVING, SENDING, Battery, Load

__all__ = ["COMPUTING", "IDLE", "RECEIVING", "SENDING", "Batteries", "Battery", "Load"]

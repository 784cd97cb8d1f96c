"""Attacks: what malicious devices do to their training data, one kind per file."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.learning.data.attacks.backdoor import Backdoor
from fednet_emu.learning.data.attacks.base import Attack
from fednet_emu.learning.data.attacks.label_flip import LabelFlip

ATTACKS: dict[str, type[Attack]] = kinds(Backdoor, LabelFlip)
"""Every kind of attack that is built in."""

AnyAttack = Annotated[Attack, Slot("attack", ATTACKS)]
"""Type of a field that holds one attack."""

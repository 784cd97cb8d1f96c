"""End-to-end transport protocols and sessions: headers, connections and windows."""

from typing import Annotated

from fednet_emu.component.slot import Slot, kinds
from fednet_emu.network.transport.transports import Grpc, Quic, Session, Tcp, Transport, Udp

TRANSPORTS: dict[str, type[Transport]] = kinds(Transport, Tcp, Quic, Udp)
SESSIONS: dict[str, type[Session]] = kinds(Session, Grpc)

AnyTransport = Annotated[Transport, Slot("transport", TRANSPORTS)]
AnySession = Annotated[Session, Slot("session", SESSIONS)]

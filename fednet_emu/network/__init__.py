"""The radio turned into events: placement, links, access, the medium, loss and availability."""

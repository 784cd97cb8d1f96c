"""The network layer: placement, links, access schemes, the media with their events, loss and availability."""

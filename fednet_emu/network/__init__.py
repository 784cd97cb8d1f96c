"""The network layer: device placement, links, access schemes, media and their events, loss, and availability."""

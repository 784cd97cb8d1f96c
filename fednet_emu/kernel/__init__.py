"""The simulation kernel: the clock, the order of events, random streams, groups of processes, and inboxes."""

"""The core of simulated time: clock, order of events, random streams, gathering of processes, and inboxes."""

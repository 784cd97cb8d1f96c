"""The time plane's core: clock, event order, random streams, gathering and inboxes."""

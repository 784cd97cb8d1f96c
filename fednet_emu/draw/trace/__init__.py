"""Write a run as a trace for Perfetto: timelines of all devices that can be zoomed and searched."""

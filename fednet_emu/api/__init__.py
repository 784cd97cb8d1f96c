"""What Python can do, and the command line through it: run, sweep, open, compare, plot, check; see `fednet_emu`."""

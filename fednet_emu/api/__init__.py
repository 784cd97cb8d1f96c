"""The Python interface, which the command line uses too: run, sweep, open, compare, plot, check; see `fednet_emu`."""

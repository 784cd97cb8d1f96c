"""`python -m fednet_emu` runs the command `fednet`."""

from fednet_emu.cli import main

if __name__ == "__main__":
    main()

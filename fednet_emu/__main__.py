"""`python -m fednet_emu` is the command `fednet`."""

from fednet_emu.cli import main

if __name__ == "__main__":
    main()

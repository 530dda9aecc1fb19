"""`python -m manyhands` is the command `manyhands`."""

from manyhands.cli.start import main

main()

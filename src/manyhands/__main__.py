"""`python -m manyhands` is the command `manyhands`."""

from manyhands.start import main

main()

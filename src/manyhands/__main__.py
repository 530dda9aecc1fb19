"""`python -m manyhands` is the command `manyhands`."""

from manyhands.cli.main import main

main()

"""`python -m ctta`: the command line."""

from ctta.cli import main

main()

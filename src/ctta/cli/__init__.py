"""The command line."""

from ctta.cli.app import main

__all__ = ["main"]

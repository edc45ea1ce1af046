"""The command line: one file per verb, each thin over the library and importing what it needs when it is called."""

from ctta.cli.app import main as main

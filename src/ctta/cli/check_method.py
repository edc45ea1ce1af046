"""`ctta check-method`: the contract, for a method of one's own."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Exit, Option

from ctta.base.errors import ConfigError, nearest
from ctta.base.text import message, quoted
from ctta.cli.options import CHANGE
from ctta.cli.terminal import say

EXAMPLES = "Example:  ctta check-method my_file.py:MyMethod"
NETWORK = "Check on this network only; can be repeated: image_bn, image_gn, vit_ln, pointnet_bn. Default: all."


def command(
    method: Annotated[str, Argument(help="file.py:Class or package.module:Class, whose code is run, or a name.")],
    network: Annotated[list[str] | None, Option(help=NETWORK)] = None,
    change: Annotated[list[str] | None, Option("--set", metavar="FIELD=VALUE", help=CHANGE)] = None,
) -> None:
    """Check what every method must honour: state, seeds, reset, bad input ..., and that it does not spoil what is easy.

    Each check is a line that says whether it holds, on which network, and what is wrong if it does not.
    """
    from ctta.experiments.sections import override
    from ctta.methods import find
    from ctta.testing import NETWORKS
    from ctta.testing.checking import describe, results

    networks = network or list(NETWORKS)
    for name in networks:
        if name not in NETWORKS:
            raise ConfigError(f"There is no network {quoted(name)}. {nearest(name, NETWORKS)}")
    kind, wrong, count = find(method), 0, 0
    kind.config_type.make(changes := override({}, change or []))
    for result in results(kind, networks, changes):
        style = "yellow" if result.refused else "bold red" if result.problem else "green"
        mark, rest = describe(result)[:8], describe(result)[8:]
        say((mark, style), message(rest))
        wrong, count = wrong + bool(result.problem), count + 1
    if wrong:
        say(f"{wrong} of {count} checks do not hold for {kind.__name__}.")
        raise Exit(1)
    say(f"All {count} checks hold for {kind.__name__}.")

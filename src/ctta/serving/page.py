"""The live page: one self-contained document, made once."""

from functools import cache


@cache
def page() -> str:
    return "<!doctype html><title>ctta</title>"

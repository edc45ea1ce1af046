"""Build hook: the long description is the README with absolute links, for the pages of indexes that show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, repository: str) -> str:
    """Markdown whose relative links and pictures are those of the repository."""

    def link(found: re.Match[str]) -> str:
        picture, words, place = found.groups()
        return f"{picture}[{LINK.sub(link, words)}]({repository}/{'raw' if picture else 'blob'}/HEAD/{place})"

    return LINK.sub(link, text)


class LongDescription(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = absolute(Path(self.root, "README.md").read_text(encoding="utf-8"), metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

"""The Hugging Face Hub: files that are in its local cache, and folders that are uploaded to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctta.base.fileio import optional_import


def cached(repository: str, file: str, extra: str) -> str | None:
    """The path of a file in the local cache; None if it is not there. Nothing is downloaded."""
    path = _hub(extra, "This model").try_to_load_from_cache(repository, file)
    return path if isinstance(path, str) else None


def upload(folder: Path | str, repository: str, *, private: bool | None, token: str | None) -> str:
    """Upload a folder to a repository, which is made if there is none; gives its address."""
    api = _hub("hub", "push_to_hub").HfApi(token=token)
    made = api.create_repo(repository, private=private, exist_ok=True).repo_id
    return str(api.upload_folder(repo_id=made, folder_path=folder, commit_message="Upload a ctta adapter"))


def _hub(extra: str, purpose: str) -> Any:
    return optional_import("huggingface_hub", extra, purpose)

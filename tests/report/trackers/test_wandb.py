"""Weights & Biases has what the records hold, once."""

from __future__ import annotations

import json
import struct

from tracked import interrupted, must_equal, needed, track


def wandb_history(path):
    """The rows of an offline run: a log of checksummed blocks with a protobuf message a record."""
    from wandb.proto.wandb_internal_pb2 import Record as Message

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            message, whole = Message.FromString(whole), b""
            if message.WhichOneof("record_type") == "history":
                yield {item.key or item.nested_key[0]: json.loads(item.value_json) for item in message.history.item} | {
                    "_step": message.history.step.num
                }


def test_wandb_has_the_records_offline(tmp_path, monkeypatch):
    needed("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder, complete = interrupted(tmp_path / "run")
    track(folder, "wandb")
    complete()
    (folder.path / "report.html").write_text("page")
    track(folder, "wandb")
    track(folder, "wandb")
    for cell in ("dss-s0", "source-s0"):
        (path,) = (folder.path / "wandb").glob(f"offline-run-*-{cell}/*.wandb")
        rows = list(wandb_history(path))
        assert [row["_step"] for row in rows] == [0, 1, 2, 3, 4, 5, 6]
        found = [(key, row["_step"], value) for row in rows for key, value in row.items() if "/" in key]
        must_equal(found, folder, cell)
    (page,) = (folder.path / "wandb").glob("offline-run-*-report/files/report.html")
    assert page.read_text() == "page"

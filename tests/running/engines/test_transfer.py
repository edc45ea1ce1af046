"""Files between two folders, piece by piece, end up the same."""

from __future__ import annotations

from ctta.running.engines.transfer import UpdateReader, apply_update, read_files, write_files


def test_what_a_worker_writes_arrives(tmp_path):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    (home / "run.json").write_text("{}")
    (home / "a-s0.jsonl").write_text("one\ntw")  # a crash cut the second line short
    (home / "b-s0.jsonl").write_text("another method run")
    files = read_files(home, "a-s0")
    assert set(files) == {"run.json", "a-s0.jsonl"}
    write_files(away, files)
    updates = UpdateReader(away, "a-s0")
    (away / "a-s0.jsonl").write_text("one\ntwo\n")
    (away / "checkpoints").mkdir()
    (away / "checkpoints" / "a-s0.safetensors").write_bytes(b"state")
    first = updates.read()
    assert (first.start, first.lines, dict(first.files)) == (4, b"two\n", {"checkpoints/a-s0.safetensors": b"state"})
    apply_update(home, "a-s0", first)
    assert (home / "a-s0.jsonl").read_text() == "one\ntwo\n"
    assert (home / "checkpoints" / "a-s0.safetensors").read_bytes() == b"state"
    with (away / "a-s0.jsonl").open("a") as file:
        file.write("three\n")
    (away / "checkpoints" / "a-s0.safetensors").unlink()
    (away / "a-s0.done.json").write_text("done")
    last = updates.read()
    assert (last.lines, set(last.files)) == (b"three\n", {"a-s0.done.json"})
    apply_update(home, "a-s0", last)
    assert (home / "a-s0.jsonl").read_text() == "one\ntwo\nthree\n"
    assert (home / "a-s0.done.json").read_text() == "done"
    assert not (home / "checkpoints" / "a-s0.safetensors").exists()
    apply_update(home, "a-s0", first)  # one that is sent again takes back what came after it, and no more
    assert (home / "a-s0.jsonl").read_text() == "one\ntwo\n"

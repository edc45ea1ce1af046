"""Corrupted sets on disk: formats, resuming, refusals."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ctta.base.errors import ConfigError, CttaError, InputError
from ctta.data.corruptions import EXTRA, NAMES, PAPER, corrupt
from ctta.data.dataset import Data
from ctta.data.datasets import open_stream
from ctta.data.export import parse_corruptions, parse_severities, plan_corruption
from image_files import decoded, pictures, save


def finish(plan, chunk=3):
    steps = list(plan.run(chunk))
    assert steps[-1].done == plan.total
    return steps


def content(root):
    """Every file below a folder that a reader of the format could see."""
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def jpeg(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=85)
    return decoded(stream)


def test_severities_are_parsed():
    assert parse_severities("1-5") == (1, 2, 3, 4, 5)
    assert parse_severities("5") == (5,)
    assert parse_severities("1, 3,5") == (1, 3, 5)
    assert parse_severities("5,1-2") == (1, 2, 5)


@pytest.mark.parametrize("text", ["", "five", "5-1", "1-", "1,,2", "-1", "1-999999999"])
def test_what_is_no_severity_is_refused(text):
    with pytest.raises(ConfigError, match=r"like 5, 1-5 or 1,3,5"):
        parse_severities(text)


def test_corruptions_are_parsed():
    assert parse_corruptions("all") == NAMES
    assert parse_corruptions("paper") == PAPER
    assert parse_corruptions("extra") == EXTRA
    assert parse_corruptions("fog, snow,fog") == ("fog", "snow")
    assert parse_corruptions("extra,fog") == (*EXTRA, "fog")


def test_cifar_c_holds_what_corrupt_gives(tmp_path, npz):
    out = tmp_path / "out"
    plan = plan_corruption(npz, out, ("fog", "gaussian_noise"), (5, 1, 2, 3, 4), seed=3)
    assert plan.total == 2 * 5 * 7
    steps = finish(plan)
    assert [step.done for step in steps[:4]] == [3, 6, 7, 10]
    assert (steps[-1].corruption, steps[-1].severity) == ("gaussian_noise", 5)
    for name in ("fog", "gaussian_noise"):
        stack = np.load(out / f"{name}.npy")
        expected = np.concatenate([corrupt(pictures(), name, severity, "cifar", seed=3) for severity in range(1, 6)])
        assert stack.dtype == np.uint8
        assert np.array_equal(stack, expected)
    labels = np.load(out / "labels.npy")
    assert labels.dtype == np.uint8
    assert labels.tolist() == [3, 1, 4, 1, 5, 9, 2] * 5
    assert {path.name for path in out.iterdir()} == {"fog.npy", "gaussian_noise.npy", "labels.npy", ".progress"}


def test_without_labels_none_are_written(tmp_path):
    np.savez(tmp_path / "bare.npz", images=pictures())
    plan = plan_corruption(tmp_path / "bare.npz", tmp_path / "out", ["contrast"], [5])
    finish(plan)
    assert "without labels" in plan.describe()
    assert not (tmp_path / "out" / "labels.npy").exists()


def test_severities_may_come_later(tmp_path, npz):
    finish(plan_corruption(npz, tmp_path / "whole", ["snow"], range(1, 6)))
    whole = np.load(tmp_path / "whole" / "snow.npy").reshape(5, 7, 32, 32, 3)
    out = tmp_path / "out"
    finish(plan_corruption(npz, out, ["snow"], [2]))
    some = np.load(out / "snow.npy").reshape(whole.shape)
    assert np.array_equal(some[1], whole[1])
    assert not some[[0, 2, 3, 4]].any()
    assert json.loads((out / ".progress" / "snow.json").read_text())["complete"] == {"2": 7}
    finish(plan_corruption(npz, out, ["snow"], range(1, 6)))
    assert (out / "snow.npy").read_bytes() == (tmp_path / "whole" / "snow.npy").read_bytes()


def test_finished_work_is_not_done_again(tmp_path, npz):
    plan = plan_corruption(npz, tmp_path / "out", ["contrast"], [1, 5])
    finish(plan)
    before = (tmp_path / "out" / "contrast.npy").stat().st_mtime_ns
    assert [step.done for step in finish(plan)] == [7, 14]
    assert (tmp_path / "out" / "contrast.npy").stat().st_mtime_ns == before
    (tmp_path / "out" / "contrast.npy").unlink()  # what was taken away is made again
    finish(plan)
    assert np.array_equal(np.load(tmp_path / "out" / "contrast.npy")[-7:], corrupt(pictures(), "contrast", 5))


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, npz, stop):
    arguments = (["fog", "contrast"], [1, 5])
    finish(plan_corruption(npz, tmp_path / "whole", *arguments))
    run = plan_corruption(npz, tmp_path / "out", *arguments).run(chunk=4)
    done = [next(run).done for _ in range(stop)][-1]
    run.close()
    assert (tmp_path / "out" / "fog.npy").exists() == (stop >= 4)  # complete, not one step before
    steps = finish(plan_corruption(npz, tmp_path / "out", *arguments), chunk=2)
    assert sum(step.done <= done for step in steps) <= 4  # a step for each block that was there
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, npz):
    code = (
        "import sys; from pathlib import Path; from ctta.data.export import plan_corruption\n"
        "plan = plan_corruption(Path(sys.argv[1]), Path(sys.argv[2]), ['glass_blur', 'fog'], [1, 2, 3, 4, 5])\n"
        "for step in plan.run(chunk=1): print(step.done, flush=True); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code, npz, tmp_path / "out"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"\n" * 10)  # it goes on after ten steps, but not after eleven
        process.stdin.flush()
        for _ in range(10):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "out" / "glass_blur.npy.partial").exists()
    arguments = (["glass_blur", "fog"], [1, 2, 3, 4, 5])
    assert finish(plan_corruption(npz, tmp_path / "out", *arguments))[1].done >= 10
    finish(plan_corruption(npz, tmp_path / "whole", *arguments))
    after = {path: data for path, data in content(tmp_path / "out").items() if not path.suffix[1:].isdigit()}
    assert after == content(tmp_path / "whole")


def test_cifar_c_from_a_folder(tmp_path):
    clean = pictures(4)
    for i, image in enumerate(clean):
        save(tmp_path / "in" / "cd"[i // 2] / f"{i}.png", image)
    finish(plan_corruption(tmp_path / "in", tmp_path / "out", ["impulse_noise"], [4], format="cifar-c"))
    assert np.array_equal(np.load(tmp_path / "out" / "impulse_noise.npy")[12:16], corrupt(clean, "impulse_noise", 4))
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == [0, 0, 1, 1] * 5


def test_imagenet_c_is_resized_cropped_and_compressed(tmp_path, folder):
    save(folder / "n01" / "z.png", pictures(1, 224, 224)[0])
    plan = plan_corruption(folder, tmp_path / "out", ["gaussian_noise"], [1, 5], preset="imagenet", seed=2)
    finish(plan)
    names = sorted(folder.rglob("*.png"))
    for i, name in enumerate(names):
        with Image.open(name) as picture:
            clean = picture.copy()
        if clean.size != (224, 224):
            short = min(clean.size)
            clean = clean.resize([int(256 * side / short) for side in clean.size], Image.Resampling.BILINEAR)
            left, top = ((side - 224) // 2 for side in clean.size)
            clean = clean.crop((left, top, left + 224, top + 224))
        for severity in (1, 5):
            written = tmp_path / "out" / "gaussian_noise" / str(severity) / name.parent.name / f"{name.stem}.JPEG"
            expected = corrupt(np.asarray(clean)[None], "gaussian_noise", severity, "imagenet", seed=2, first=i)
            assert np.array_equal(decoded(written), jpeg(expected[0]))
            with Image.open(written) as picture:
                assert picture.format == "JPEG"


def test_pictures_of_any_size_stay_so_with_the_cifar_constants(tmp_path, folder):
    finish(plan_corruption(folder, tmp_path / "out", ["fog"], [3], preset="cifar"))
    for i, name in enumerate(sorted(folder.rglob("*.png"))):
        written = decoded(tmp_path / "out" / "fog" / "3" / name.parent.name / f"{name.stem}.JPEG")
        assert np.array_equal(written, jpeg(corrupt(decoded(name)[None], "fog", 3, first=i)[0]))


def test_a_stopped_tree_goes_on_bit_for_bit(tmp_path, folder):
    arguments = (["fog", "contrast"], [1, 2], "cifar")
    finish(plan_corruption(folder, tmp_path / "whole", *arguments))
    run = plan_corruption(folder, tmp_path / "out", *arguments).run(chunk=2)
    for _ in range(4):
        next(run)
    run.close()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.JPEG")}
    assert len(times) == 7
    finish(plan_corruption(folder, tmp_path / "out", *arguments))
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_arrays_as_a_tree(tmp_path, npz):
    finish(plan_corruption(npz, tmp_path / "out", ["contrast"], [5], format="imagenet-c"))
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.JPEG"))
    assert written[:3] == ["contrast/5/1/1.JPEG", "contrast/5/1/3.JPEG", "contrast/5/2/6.JPEG"]
    assert len(written) == 7


@pytest.mark.parametrize(("side", "preset"), [(64, "cifar"), (65, "imagenet")])
def test_a_stream_and_a_corrupted_set_have_the_same_constants(tmp_path, side, preset):
    np.savez(tmp_path / "clean.npz", images=pictures(2, 40, side), labels=np.arange(2))
    finish(plan_corruption(tmp_path / "clean.npz", tmp_path / "out", ["shot_noise"], [5]))
    written = np.load(tmp_path / "out" / "shot_noise.npy")[-2:]
    data = Data(dataset="arrays", path=str(tmp_path / "clean.npz"), domains=("shot_noise",))
    streamed, _ = open_stream(data).domains[0].load(np.arange(2))
    assert np.array_equal(written, streamed)
    assert np.array_equal(written, corrupt(pictures(2, 40, side), "shot_noise", 5, preset))


def test_constants_go_by_size(tmp_path):
    for side, preset in ((32, "cifar"), (64, "cifar"), (65, "imagenet"), (224, "imagenet")):
        np.savez(tmp_path / "clean.npz", images=pictures(2, side - 4, side))
        assert plan_corruption(tmp_path / "clean.npz", tmp_path / "out", ["fog"], [5]).preset == preset
    for i, side in enumerate((40, 300, 400)):  # most pictures decide
        save(tmp_path / "in" / f"{i}.png", pictures(1, side, 500)[0])
    assert plan_corruption(tmp_path / "in", tmp_path / "out", ["fog"], [5]).preset == "imagenet"


def test_a_picture_cut_short_is_named_and_the_rest_goes_on(tmp_path, folder):
    path = sorted(folder.rglob("*.png"))[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    plan = plan_corruption(folder, tmp_path / "out", ["contrast"], [5], preset="cifar")
    with pytest.raises(InputError, match=rf"{path.name} cannot be read as an image .* replace it"):
        list(plan.run())
    assert len(list((tmp_path / "out").rglob("*.JPEG"))) == 4


def test_everything_wrong_is_reported_at_once(tmp_path, folder):
    save(folder / "n00" / "small.png", pictures(1, 20, 20)[0])
    with pytest.raises(ConfigError) as caught:
        plan_corruption(folder, folder / "out", ["fogg", "snow"], [0, 5, 6], "cifar", seed=-1, format="cifar-c")
    for part in (
        "No corruption is called 'fogg'. Did you mean 'fog'?",
        "Got 0 instead",
        "Got 6 instead",
        "`seed`",
        "smaller ones (n00/small.JPEG: 20 x 20)",
        "images of one size",
        "lies in",
    ):
        assert part in str(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        plan_corruption(tmp_path / "no", tmp_path / "file" / "out", [], [], "imagnet", format="cifr-c")
    for part in ("no does not exist", "file is a file", "No corruption", "No severity", "'imagenet'?", "'cifar-c'?"):
        assert part in str(caught.value)


def test_unreadable_places_are_refused(tmp_path, npz):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        plan_corruption(tmp_path / "empty", tmp_path / "out", ["fog"], [5])
    with pytest.raises(InputError, match="No frost photographs"):
        plan_corruption(npz, tmp_path / "out", ["frost"], [5], frost=tmp_path / "empty")
    for ending in ("png", "bmp"):
        save(tmp_path / "twins" / f"a.{ending}", pictures(1)[0])
    with pytest.raises(InputError, match="differ only in their suffix"):
        plan_corruption(tmp_path / "twins", tmp_path / "out", ["fog"], [5])


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, npz):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot be written to"):
        plan_corruption(npz, tmp_path / "locked" / "out", ["fog"], [5])


def test_a_full_disk_is_noticed_first(tmp_path, npz, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 7 * 5 * 3072 * 2 - 1}))
    plan_corruption(npz, tmp_path / "out", ["fog"], [5])
    with pytest.raises(InputError, match="GB free"):
        plan_corruption(npz, tmp_path / "out", ["fog", "snow"], [5])


def test_other_settings_are_refused(tmp_path, npz):
    out = tmp_path / "out"
    next(plan_corruption(npz, out, ["fog"], [5]).run(2))
    other = tmp_path / "other.npz"
    np.savez(other, images=pictures()[::-1], labels=np.array([3, 1, 4, 1, 5, 9, 2]))
    for source, changes, message in (
        (npz, {"seed": 1}, "seed 0, now 1"),
        (npz, {"preset": "imagenet"}, "preset cifar, now imagenet"),
        (npz, {"format": "imagenet-c"}, "format cifar-c, now imagenet-c"),
        (other, {}, "input"),
    ):
        for corruption in ("fog", "snow"):  # a folder holds one set of settings
            with pytest.raises(ConfigError, match=f"begun with other settings for fog .*{message}"):
                plan_corruption(source, out, [corruption], [5], **changes)
    finish(plan_corruption(npz, out, ["fog"], [5]))
    (out / ".progress" / "fog.json").write_text("{")
    with pytest.raises(CttaError, match=r"fog\.json cannot be read"):
        plan_corruption(npz, out, ["fog"], [5])


def test_other_frost_is_refused_where_frost_is_asked_for(tmp_path, npz):
    save(tmp_path / "photographs" / "frost1.png", pictures(1, 200, 200)[0])
    finish(plan_corruption(npz, tmp_path / "out", ["contrast"], [5]))
    finish(plan_corruption(npz, tmp_path / "out", ["frost"], [5], frost=tmp_path / "photographs"))
    plan_corruption(npz, tmp_path / "out", ["contrast"], [5])
    with pytest.raises(ConfigError, match=r"frost \w{16}, now drawn"):
        plan_corruption(npz, tmp_path / "out", ["frost"], [5])
    stack = np.load(tmp_path / "out" / "frost.npy")
    assert np.array_equal(stack[28:], corrupt(pictures(), "frost", 5, frost=tmp_path / "photographs"))


def test_files_of_others_are_left_alone(tmp_path, npz, folder):
    for name in ("fog.npy", "fog.npy.partial"):
        (tmp_path / "public").mkdir(exist_ok=True)
        np.save(tmp_path / "public" / "labels.npy", np.array([3, 1, 4, 1, 5, 9, 2] * 5))  # the same ones: no matter
        (tmp_path / "public" / name).write_bytes(b"precious")
        with pytest.raises(ConfigError, match=rf"{name} exists and was not made here"):
            plan_corruption(npz, tmp_path / "public", ["fog"], [5])
    plan_corruption(npz, tmp_path / "public", ["snow"], [5])
    np.save(tmp_path / "public" / "labels.npy", np.arange(35))
    with pytest.raises(ConfigError, match="holds other labels"):
        plan_corruption(npz, tmp_path / "public", ["snow"], [5])
    (tmp_path / "tree" / "fog" / "5").mkdir(parents=True)
    with pytest.raises(ConfigError, match="fog exists and was not made here"):
        plan_corruption(folder, tmp_path / "tree", ["fog"], [5])


def test_a_plan_says_what_it_will_do(npz, folder):
    text = plan_corruption(npz, Path("out"), PAPER, [5]).describe()
    assert text == (
        f"15 corruptions at severity 5 of the 7 images in {npz}, with the cifar constants and seed 0, to "
        "out/<corruption>.npy, with labels.npy (105 images)."
    )
    text = plan_corruption(folder, Path("out"), ["fog"], [1, 2], preset="imagenet").describe()
    assert "1 corruption at severities 1, 2 of the 5 images" in text
    assert "resized to 256 and cropped to 224 pixels" in text
    assert "out/<corruption>/<severity> (10 images)." in text


def test_a_chunk_holds_an_image(tmp_path, npz):
    with pytest.raises(ConfigError, match="`chunk` must be at least 1"):
        next(plan_corruption(npz, tmp_path / "out", ["fog"], [5]).run(0))

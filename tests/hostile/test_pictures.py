"""Picture folders and picture files made to hang, to fill the memory, or to be read as garbage."""

from __future__ import annotations

import io
import os
import socket
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from ctta.base.errors import InputError
from ctta.base.limits import PIXELS
from ctta.data.clean import read_clean_images
from ctta.data.datasets.imagenet_r import IMAGENET_R
from ctta.data.pictures import Fit, files_below, picture_size, read_picture
from ctta.data.unlabelled import open_samples, open_unlabelled
from image_files import pictures, save
from mutations import mutated, refused_of
from trees import opened, refusal, write_classes


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # a path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def link(target):
    return lambda path: path.symlink_to(target)


ODD = [
    ("a pipe", "b/odd.png", fifo, "no regular files (b/odd.png)"),
    ("a socket", "b/odd.png", unix_socket, "no regular files (b/odd.png)"),
    ("a link to a device", "b/odd.png", link("/dev/zero"), "no regular files (b/odd.png)"),
    ("a broken link", "b/odd.png", link("nothing"), "no regular files (b/odd.png)"),
    ("a link to itself", "b/odd.png", link("odd.png"), "no regular files (b/odd.png)"),
    ("a link to the folder itself", "b/odd", link("."), "above them (b/odd)"),
    ("a link upward", "b/odd", link(".."), "above them (b/odd)"),
    ("a link above the root", "b/odd", link("../.."), "above them (b/odd)"),
    ("a link to the whole disk", "b/odd", link("/"), "above them (b/odd)"),
    ("a link to another class", "b/odd", link("../a"), "read elsewhere (b/odd)"),
    ("a link to another picture", "b/odd.png", link("../a/a_0.png"), "read elsewhere (b/odd.png)"),
    ("a name that is not UTF-8", os.fsdecode(b"b/\xff.png"), lambda p: p.touch(), r"(b/\udcff.png)"),
    ("a folder that is not UTF-8", os.fsdecode(b"\xff"), lambda p: p.mkdir(), r"(\udcff)"),
    ("a name that clears the screen", "b/\x1b[2J.png", lambda p: p.touch(), r"(b/\x1b[2J.png)"),
    ("a name with a new line", "b/1\n2.png", lambda p: p.touch(), r"(b/1\n2.png)"),
]


@pytest.mark.parametrize(("kind", "name", "make", "said"), ODD, ids=[odd[0] for odd in ODD])
def test_what_is_no_picture_is_left_out_in_a_sentence(tmp_path, attempt, kind, name, make, said):
    root = write_classes(tmp_path / "root", ("a", "b"), each=2, size=(32, 32), suffix=".png")
    make(root / name)
    whole = ["a/a_0.png", "a/a_1.png", "b/b_0.png", "b/b_1.png"]
    names, note = files_below(root)
    assert sorted(names) == whole
    assert said in note
    assert note.startswith(f"Left out in {root}: 1 ")
    note.encode()
    assert open_samples(root).names == tuple(whole)
    assert open_unlabelled(root, 2).notes == (note,)
    assert opened(root).notes == (note,)
    assert read_clean_images(root).note == note
    attempt("folders with pipes, links and names", 4)


def test_links_to_pictures_elsewhere_are_followed_once(tmp_path, attempt):
    save(tmp_path / "store" / "x.png", pictures(1)[0])
    (tmp_path / "store" / "round").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "a").mkdir(parents=True)
    for name in ("1.png", "2.png"):
        (tmp_path / "root" / "a" / name).symlink_to(tmp_path / "store" / "x.png")
    assert files_below(tmp_path / "root")[0] == ["a/1.png"]
    (tmp_path / "root" / "b").symlink_to(tmp_path / "store")
    names, note = files_below(tmp_path / "root")
    assert names == ["b/x.png"]
    assert "3 that link to what is read elsewhere (a/1.png, a/2.png, b/round)" in note
    attempt("folders with pipes, links and names", 2)


def test_forty_links_upward_are_not_forty_times_the_pictures(tmp_path, attempt):
    write_classes(tmp_path, ("a",), each=1, size=(8, 8))
    for number in range(40):
        (tmp_path / "a" / f"up{number}").symlink_to(tmp_path)
        (tmp_path / "a" / f"to{number}").symlink_to(tmp_path / "a")
    names, note = files_below(tmp_path)
    assert names == ["a/a_0.JPEG"]
    assert "80 that link to a folder above them (a/to0, a/to1, a/to10 ... and 77 more)" in note
    attempt("folders with pipes, links and names", 80)


def test_a_folder_that_cannot_be_opened_is_named(tmp_path, attempt, monkeypatch):
    write_classes(tmp_path, ("a", "b"), each=1, size=(8, 8))
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert files_below(tmp_path) == (["a/a_0.JPEG"], f"Left out in {tmp_path}: 1 that cannot be opened (b/).")
    attempt("folders with pipes, links and names")


@pytest.mark.parametrize("line", ["a/../../x.png", "../root/a/a_0.png", "a/\0.png", "a/pipe.png", "a/none.png", "a/a"])
def test_a_list_that_names_what_is_no_picture(tmp_path, attempt, line):
    root = write_classes(tmp_path / "root", ("a",), each=1, size=(32, 32), suffix=".png")
    fifo(root / "a" / "pipe.png")
    (tmp_path / "list.txt").write_text(f"a/a_0.png\n{line}\n")
    assert str(root) in refusal(root, list=str(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_bytes(b"a/\xff.png")
    assert "list.txt cannot be read as a list of pictures" in refusal(root, list=str(tmp_path / "list.txt"))
    assert "It is no regular file" in refusal(root, list=str(root / "a" / "pipe.png"))
    attempt("lists of pictures", 3)


RAMP = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
COLOUR = np.stack([RAMP, RAMP.T, 255 - RAMP], 2)
GREY = np.repeat(RAMP[..., None], 3, 2)
CLOSE = 6  # of 255: what JPEG, and colours mixed from four inks, may change


def stored(array, suffix, mode=None, **options):
    content = io.BytesIO()
    made = Image.fromarray(array)
    (made.convert(mode) if mode else made).save(content, suffix, **options)
    return content.getvalue()


def animated(suffix):
    return stored(COLOUR, suffix, save_all=True, append_images=[Image.fromarray(255 - COLOUR)], lossless=True)


READ = [
    ("grey PNG", stored(RAMP, "PNG"), GREY),
    ("grey and transparent PNG", stored(RAMP, "PNG", "LA"), GREY),
    ("transparent PNG", stored(np.dstack([COLOUR, RAMP]), "PNG"), COLOUR),
    ("palette PNG", stored(RAMP, "PNG", "P"), GREY),
    ("palette and transparent PNG", stored(RAMP, "PNG", "P", transparency=3), GREY),
    ("1-bit PNG", stored(RAMP > 100, "PNG"), np.repeat((RAMP[..., None] > 100) * 255, 3, 2)),
    ("1-bit TIFF", stored(RAMP > 100, "TIFF"), np.repeat((RAMP[..., None] > 100) * 255, 3, 2)),
    ("16-bit PNG", stored(RAMP.astype(np.uint16) * 257, "PNG"), GREY),
    ("16-bit TIFF", stored(RAMP.astype(np.uint16) * 257, "TIFF"), GREY),
    ("16-bit TIFF, big-endian", stored((RAMP.astype(np.uint16) * 257).astype(">u2"), "TIFF"), GREY),
    ("16-bit TIFF, white is zero", stored(RAMP.astype(np.uint16) * 257, "TIFF", tiffinfo={262: 0}), 255 - GREY),
    ("16-bit PGM", b"P5 8 8 65535\n" + (RAMP.astype(np.uint16) * 257).astype(">u2").tobytes(), GREY),
    ("PGM up to 63", b"P5 8 8 63\n" + (RAMP // 4).tobytes(), np.round(GREY // 4 / 63 * 255)),
    ("grey TIFF, white is zero", stored(RAMP, "TIFF", tiffinfo={262: 0}), None),
    ("CMYK JPEG", stored(np.full((8, 8, 3), 90, np.uint8), "JPEG", "CMYK", quality=100), np.full((8, 8, 3), 90)),
    ("CMYK TIFF", stored(COLOUR, "TIFF", "CMYK"), COLOUR),
    ("LAB TIFF", stored(COLOUR // 4 + 96, "TIFF", "LAB"), COLOUR // 4 + 96),
    ("YCbCr TIFF", stored(COLOUR, "TIFF", "YCbCr"), COLOUR),
    ("animated GIF", animated("GIF"), None),
    ("animated PNG", animated("PNG"), COLOUR),
    ("animated WebP", animated("WEBP"), COLOUR),
    ("TIFF of two pages", animated("TIFF"), COLOUR),
]


@pytest.mark.parametrize(("kind", "content", "expected"), READ, ids=[case[0] for case in READ])
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"], ids=str)
def test_kinds_of_pixels_are_read_right_whatever_the_suffix(tmp_path, attempt, kind, content, expected, suffix):
    (tmp_path / f"some{suffix}").write_bytes(content)
    image = read_picture(tmp_path / f"some{suffix}").astype(int)
    assert image.shape == (8, 8, 3)
    if expected is not None:
        assert np.abs(image - expected).max() <= CLOSE
    elif "GIF" in kind:
        assert np.abs(image - COLOUR).mean() < 60  # the first frame, in a palette, and not the second one
    attempt("kinds of pixels")


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, data=b"", *before):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(before) + body + chunk(b"IEND", b"")


def bmp(width, height):
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%touch ran) (w) file\n%%EOF\n"
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>'
REFUSED = [
    ("empty", b"", "is empty"),
    ("text", b"no picture", "cannot be read as an image"),
    ("a web page", b"<!DOCTYPE html>", "is a web page"),
    ("SVG", SVG, "is a web page"),
    ("EPS, which runs a program", EPS, "cannot be read as an image"),
    ("ICO", stored(COLOUR, "ICO"), "cannot be read as an image"),
    ("PDF", stored(COLOUR, "PDF"), "cannot be read as an image"),
    ("int32 TIFF", stored(RAMP.astype(np.int32) * 1000, "TIFF"), "32-bit numbers"),
    ("float TIFF", stored(RAMP.astype(np.float32) / 255, "TIFF"), "32-bit numbers"),
    ("NaN TIFF", stored(np.full((8, 8), np.nan, np.float32), "TIFF"), "32-bit numbers"),
    ("cut PNG", stored(pictures(1)[0], "PNG")[:1500], "truncated"),
    ("cut JPEG", stored(pictures(1)[0], "JPEG")[:700], "truncated"),
    ("a PNG of 4 billion pixels", png(2**16, 2**16), f"more than {PIXELS} pixels"),
    ("a PNG of 2**60 pixels", png(2**30, 2**30), f"more than {PIXELS} pixels"),
    ("a BMP of 10**10 pixels", bmp(10**5, 10**5), f"more than {PIXELS} pixels"),
    ("a PGM of 10**18 pixels", b"P5 1000000000 1000000000 255\n", f"more than {PIXELS} pixels"),
    ("a PNG without pixels", png(0, 8), "cannot be read as an image"),
    ("a text that unpacks to 100 MB", png(8, 8, b"", chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**8)))), "image"),
]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("kind", "content", "said"), REFUSED, ids=[case[0] for case in REFUSED])
def test_files_that_are_refused(tmp_path, attempt, kind, content, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_picture(path, upright=True)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "ran").exists()
    attempt("pictures that are none")


@pytest.mark.parametrize("make", [fifo, lambda path: path.mkdir(), link("/dev/zero")], ids=["pipe", "folder", "device"])
@pytest.mark.parametrize("read", [read_picture, picture_size])
def test_what_is_no_file_is_not_opened(tmp_path, attempt, make, read):
    make(tmp_path / "some.png")
    with pytest.raises(InputError, match=r"some\.png is refused\. It is no regular file"):
        read(tmp_path / "some.png")
    attempt("pictures that are none")


def test_a_picture_that_may_not_be_read(tmp_path, attempt, monkeypatch):
    save(tmp_path / "some.png", pictures(1)[0])

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "open", refuse)
    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(InputError, match=r"some\.png cannot be read as an image .*Permission denied"):
        read_picture(tmp_path / "some.png")
    attempt("pictures that are none")


def test_a_thin_picture_does_not_grow_when_it_is_resized(attempt):
    with pytest.raises(InputError, match=f"between 1 and {PIXELS}"):
        Fit(224, 224)(np.zeros((1, 50_000, 3), np.uint8))
    attempt("pictures that are none")


def test_an_empty_class_and_a_class_of_damaged_pictures(tmp_path, attempt):
    root = write_classes(tmp_path, each=1)
    (root / "n00000001").mkdir()
    assert len(opened(root).classes) == 1000
    (root / "n01440764").mkdir()
    (root / "n01440764" / "0.png").touch()
    assert "Empty: n01440764/0.png." in refusal(root)
    assert "Empty: n01440764/0.png." in refusal(root, "imagenet_r", domains=IMAGENET_R.domains["paper"])
    attempt("pictures that are none", 3)


SEEDS = [
    ("PNG", stored(pictures(1, 12, 12)[0], "PNG")),
    ("PNG of a palette", stored(pictures(1, 12, 12)[0], "PNG", "P")),
    ("JPEG", stored(pictures(1, 12, 12)[0], "JPEG")),
    ("WebP", stored(pictures(1, 12, 12)[0], "WEBP")),
    ("GIF", stored(pictures(1, 12, 12)[0], "GIF")),
    ("BMP", stored(pictures(1, 12, 12)[0], "BMP")),
    ("TIFF", stored(pictures(1, 12, 12)[0], "TIFF")),
    ("TIFF, deflated", stored(pictures(1, 12, 12)[0], "TIFF", compression="tiff_deflate")),
    ("PPM", stored(pictures(1, 12, 12)[0], "PPM")),
]
EACH = 300


@pytest.mark.parametrize(("kind", "content"), SEEDS, ids=[case[0] for case in SEEDS])
def test_damaged_pictures_are_read_or_refused(tmp_path, attempt, kind, content):
    def read(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of many kinds of damage
            size, image = picture_size(path, upright=True), read_picture(path, upright=True)
        assert (image.dtype, image.shape) == (np.uint8, (*size, 3))

    assert refused_of(mutated(content, EACH), tmp_path / "some.png", read) > EACH / 10
    attempt("damaged pictures", EACH)

"""Files of weights made to run code, to fill the memory, or to be loaded as garbage."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import struct
import sys
import tarfile
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

from ctta.base.errors import InputError, ModelError
from ctta.models.load import from_factory, load
from ctta.models.torch_file import MAGIC, VERSION
from ctta.models.weights import read_state, trained_names
from mutations import mutated, refused_of

HUGE = 10**12
STATE = {"fc.weight": torch.linspace(-1, 1, 12).reshape(3, 4), "fc.bias": torch.zeros(3), "n": torch.tensor(5)}


def saved(content, new=True, **options):
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=new, **options)
    return file.getvalue()


def repacked(change, content=None):
    """A torch archive whose data.pkl was changed."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(STATE) if content is None else content)) as old,
        zipfile.ZipFile(made, "w") as new,
    ):
        for entry in old.infolist():
            member = old.read(entry)
            new.writestr(entry.filename, change(member) if entry.filename.endswith("data.pkl") else member)
    return made.getvalue()


def pickled(content):
    """A torch archive with any pickle."""
    return repacked(lambda _: content)


def sequence(content, keys=(), storages=b""):
    """A file of the old format with any pickle."""
    parts = [pickle.dumps(part, 2) for part in (MAGIC, VERSION, {"little_endian": True})]
    return b"".join([*parts, content, pickle.dumps(list(keys), 2), storages])


def tensor_pickle(shape, strides, count=4, storage="FloatStorage", key="0", offset=0, view=b""):
    """The pickle of {"w": a tensor} in which everything is free."""

    def tuple_of(numbers):
        return b"(" + b"".join(pickle.dumps(number, 2)[2:-1] for number in numbers) + b"t"

    return (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n"
        + storage.encode() + b"\nX\x01\x00\x00\x00" + key.encode() + b"X\x03\x00\x00\x00cpu"
        + pickle.dumps(count, 2)[2:-1] + view + b"tQ" + pickle.dumps(offset, 2)[2:-1]
        + tuple_of(shape) + tuple_of(strides) + b"\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


def safetensors(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def archived():
    """The tar format of the first versions of torch, with pickles that would run."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("storages", "tensors", "pickle"):
            content = pickle.dumps(Call(os.mkdir, "ran"))
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def script():
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), made)
    return made.getvalue()


RUN = Call(os.mkdir, "ran")
CODE = [
    ("a call in an archive", lambda: saved(STATE | {"x": RUN})),
    ("a call in the old format", lambda: saved(STATE | {"x": RUN}, new=False)),
    ("a call in a newer protocol", lambda: saved(STATE | {"x": RUN}, pickle_protocol=4)),
    ("only a pickle", lambda: pickle.dumps(RUN)),
    ("a pickle for the magic number", lambda: pickle.dumps(RUN) + sequence(b"}.")[40:]),
    ("a pickle for the system", lambda: sequence(b"").replace(b"little_endian", b"\x00") + pickle.dumps(RUN)),
    ("a pickle for the keys", lambda: sequence(b"}." + pickle.dumps(RUN))),
    ("a call in a persistent id", lambda: pickled(b"cos\nmkdir\n(X\x03\x00\x00\x00rantRQ.")),
    ("a persistent id of a module", lambda: pickled(b"(X\x06\x00\x00\x00modulecos\nmkdir\nX\x01\x00\x00\x00atQ.")),
    ("the tar format", archived),
    ("TorchScript", script),
    ("a whole model", lambda: saved(nn.Linear(2, 2))),
    ("a state that sets attributes", lambda: pickled(b"ctorch.nn.modules.linear\nLinear\n)\x81}b.")),
    ("eval", lambda: saved(Call(eval, "__import__('os').mkdir('ran')"))),
    ("a name behind a known one", lambda: pickled(b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.")),
    ("an import by torch", lambda: pickled(b"ctorch._utils\n_import_dotted_name\n(X\x02\x00\x00\x00ostR.")),
    ("an instance", lambda: pickled(b"(X\x03\x00\x00\x00ranios\nmkdir\n.")),
    ("a subclass", lambda: pickled(b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nmkdir\nNX\x03\x00\x00\x00ranNtR.")),
    ("a numpy object", lambda: saved({"x": np.array([RUN], object)} | STATE)),
]


@pytest.mark.parametrize(("kind", "make"), CODE, ids=[case[0] for case in CODE])
def test_no_code_runs(tmp_path, attempt, kind, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pt"
    path.write_bytes(make())
    with pytest.raises(InputError, match=r"weights\.pt"):
        read_state(path)
    assert not (tmp_path / "ran").exists()
    attempt("weights that want to run code")


TWINS = b")" + b"q\x00h\x00\x86" * 60  # 2 ** 60 empty tuples, whose hash takes years
ONE = struct.pack("<q", 4) + bytes(16)
CLAIMS = [
    ("a stretched tensor", lambda: pickled(tensor_pickle((HUGE,), (0,), 12, key="0")), "claims"),
    ("a stretched tensor of many sides", lambda: pickled(tensor_pickle((10**6, 10**6), (0, 0), 12)), "claims"),
    ("a tensor larger than its storage", lambda: pickled(tensor_pickle((13,), (1,), 12)), "claims the shape"),
    ("steps that are too long", lambda: pickled(tensor_pickle((2,), (12,), 12)), "claims the shape"),
    ("an offset that is too large", lambda: pickled(tensor_pickle((1,), (1,), 12, offset=12)), "claims the shape"),
    ("a negative offset", lambda: pickled(tensor_pickle((1,), (1,), 12, offset=-1)), "claims the shape"),
    ("negative steps", lambda: pickled(tensor_pickle((3,), (-1,), 12, offset=2)), "claims the shape"),
    ("a negative shape", lambda: pickled(tensor_pickle((-3,), (1,), 12)), "claims the shape"),
    ("a shape beyond an address", lambda: pickled(tensor_pickle((2**62, 2**62), (1, 1), 12)), "claims"),
    ("a shape of floats", lambda: pickled(tensor_pickle((2.0,), (1,), 12)), "whole numbers"),
    ("steps that are missing", lambda: pickled(tensor_pickle((3,), (), 12)), "without a storage"),
    ("a storage that is too large", lambda: pickled(tensor_pickle((1,), (1,), HUGE)), "for a storage of 48"),
    ("a storage of another type", lambda: pickled(tensor_pickle((1,), (1,), 12, "DoubleStorage")), "for a storage"),
    ("a storage that is not there", lambda: pickled(tensor_pickle((1,), (1,), 12, key="9")), "KeyError"),
    ("a negative storage", lambda: pickled(tensor_pickle((1,), (1,), -12)), "no possible size"),
    (
        "old: a storage that is too large",
        lambda: sequence(tensor_pickle((1,), (1,), HUGE, view=b"N"), "0", ONE),
        "more",
    ),
    ("old: a storage that is missing", lambda: sequence(tensor_pickle((4,), (1,), 4, view=b"N"), "0"), "more than"),
    ("old: a key that is not there", lambda: sequence(tensor_pickle((4,), (1,), 4, view=b"N"), "7", ONE), "KeyError"),
    ("old: a stretched tensor", lambda: sequence(tensor_pickle((HUGE,), (0,), view=b"N"), "0", ONE), "claims"),
    ("a key that takes forever", lambda: pickled(b"}" + TWINS + b"Ns."), "as a key"),
    ("a memo without end", lambda: pickled(b"}r\xff\xff\xff\xff."), "no weights by name"),
    ("a text without end", lambda: pickled(b"X\xff\xff\xff\x7fa."), "truncated"),
    ("a dictionary in itself", lambda: pickled(b"}q\x00X\x05\x00\x00\x00modelh\x00s."), "no weights by name"),
    (
        "a tensor that allocates",
        lambda: pickled(b"ctorch\nTensor\n(J\x00\x00\x00\x7fJ\x00\x00\x00\x7ftR."),
        "no weights",
    ),
    ("a storage that allocates", lambda: pickled(b"ctorch\nFloatStorage\n(J\x00\x00\x00\x7ftR."), "damaged"),
    ("a codec", lambda: pickled(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR."), "no weights"),
    ("a compressed archive", lambda: _compressed(saved(STATE)), "was compressed"),
    ("two entries of one name", lambda: _doubled(saved(STATE)), "two entries of the same name"),
    ("a sparse tensor", lambda: saved({"w": torch.eye(3).to_sparse()}), r"w \(sparse\)"),
    ("a tensor without content", lambda: saved({"w": torch.empty(3, device="meta")}), r"w \(without content\)"),
    (
        "float8",
        lambda: saved({"w": torch.zeros(3).to(torch.float8_e4m3fn)}),
        r"no model takes: w \(torch.float8_e4m3fn\)",
    ),
    ("NaN", lambda: saved(STATE | {"a": torch.tensor([1, np.nan]), "b": torch.tensor(np.inf)}), "in 2 tensors: a, b"),
    ("complex NaN", lambda: saved({"a": torch.tensor([complex(0, np.nan)])}), "in 1 tensors: a"),
    ("keys that are no texts", lambda: saved({0: torch.zeros(2), 1: torch.ones(2)}), "no weights by name"),
    ("a list", lambda: saved([torch.zeros(2)]), "no weights by name"),
    ("safetensors: a header of many bytes", lambda: struct.pack("<Q", 2**62) + b"{}", "truncated or damaged"),
    ("safetensors: no JSON", lambda: safetensors(b"{nonsense"), "truncated or damaged"),
    ("safetensors: deep JSON", lambda: safetensors(b'{"a":' * 10**4), "truncated or damaged"),
    *(
        (f"safetensors: {kind}", lambda entry=entry: safetensors({"w": entry}, bytes(16)), "truncated or damaged")
        for kind, entry in {
            "a huge shape": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 16]},
            "a shape beyond an address": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]},
            "content that is not there": {"dtype": "F32", "shape": [400], "data_offsets": [0, 1600]},
            "content that begins late": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
            "a negative shape": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
            "no such type": {"dtype": "X32", "shape": [4], "data_offsets": [0, 16]},
        }.items()
    ),
    ("safetensors: NaN", lambda: save({"w": torch.tensor([np.nan])}), "NaN or infinity in 1 tensors: w"),
    ("safetensors: float8", lambda: save({"w": torch.zeros(3).to(torch.float8_e5m2)}), "no model takes"),
]


def _compressed(content):
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return made.getvalue()


def _doubled(content):
    made = io.BytesIO(content)
    with zipfile.ZipFile(made, "a") as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(name, b"}.")
    return made.getvalue()


@pytest.mark.parametrize(("kind", "make", "said"), CLAIMS, ids=[case[0] for case in CLAIMS])
def test_weights_that_are_not_what_they_claim(tmp_path, attempt, kind, make, said):
    path = tmp_path / "weights.pt"
    path.write_bytes(make())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=said) as caught:
        read_state(path)
    assert str(path) in str(caught.value)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 2**28, "the memory of a process"
    attempt("weights that are not what they claim")


def shared():
    whole = torch.arange(12.0)
    return {"a": whole, "b": whole[4:8], "c": whole.view(3, 4).T, "d": whole[::3], "e": torch.ones(1).expand(5, 6)}


GOOD = [
    ("views of one storage", shared()),
    ("parameters", nn.Linear(3, 2).state_dict(keep_vars=True)),
    ("an ordered dictionary", OrderedDict(STATE)),
    ("every type", {str(t): torch.ones(3).to(t) for t in (torch.float16, torch.bfloat16, torch.float64, torch.int8)}),
    ("flags and bytes", {"f": torch.tensor([True, False]), "b": torch.arange(3, dtype=torch.uint8)}),
    ("scalars and nothing", {"s": torch.tensor(2.5), "e": torch.empty(0), "n": torch.empty(2, 0, 3)}),
    ("names in every alphabet", {"écran.日本": torch.ones(2), "": torch.zeros(1)}),
]


@pytest.mark.parametrize(("kind", "state"), GOOD, ids=[case[0] for case in GOOD])
@pytest.mark.parametrize("new", [True, False], ids=["archive", "sequence"])
def test_unusual_weights_are_read_as_torch_reads_them(tmp_path, attempt, kind, state, new):
    path = tmp_path / "weights.pt"
    path.write_bytes(saved({"model": state, "epoch": 3, "rate": np.float64(0.1)}, new))
    read = read_state(path)
    assert list(read) == list(state)
    for key, value in state.items():
        assert torch.equal(read[key], value.detach()), key
        assert read[key].dtype == value.dtype
    attempt("unusual weights that are right")


FITS = [  # the weight of a layer from 4 to 3
    ("whole numbers", torch.ones(3, 4, dtype=torch.int8), "1 of another type: weight"),
    ("complex numbers", torch.ones(3, 4, dtype=torch.complex64), "1 of another type: weight"),
    ("beyond float32", torch.full((3, 4), 1e300, dtype=torch.float64), "1 of another type: weight"),
    ("another shape", torch.ones(3, 5), "of another shape: weight"),
    ("no shape", torch.tensor(1.0), "of another shape: weight"),
]


@pytest.mark.parametrize(("kind", "weight", "said"), FITS, ids=[case[0] for case in FITS])
def test_weights_of_another_kind_than_the_model(tmp_path, attempt, kind, weight, said):
    (tmp_path / "own.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(4, 3)\n")
    torch.save({"weight": weight, "bias": torch.ones(3)}, tmp_path / "weights.pt")
    with pytest.raises((ModelError, InputError), match=said) as caught:
        from_factory(f"{tmp_path / 'own.py'}:make", tmp_path / "weights.pt")
    assert "weights.pt" in str(caught.value)
    attempt("weights that are not what they claim")


@pytest.mark.parametrize("number", ["1000000000000", "999999999", "²", "-3", "nan"])
def test_a_number_of_classes_is_no_order_to_build_a_large_model(tmp_path, attempt, number):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(save({"w": torch.ones(2)}, {"ctta": "1", "num_classes": number, "classes": "[1"}))
    with pytest.raises(ModelError, match=r"weights\.safetensors"):
        load("cifar_resnet20", path)
    with pytest.raises(InputError, match=r"names of the classes in .*weights\.safetensors"):
        trained_names(path)
    attempt("weights that are not what they claim", 2)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("no"),
    ],
    ids=["pipe", "folder", "device", "broken link"],
)
def test_what_is_no_file_is_not_opened(tmp_path, attempt, make):
    make(tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"There is no file .*weights\.pt"):
        read_state(tmp_path / "weights.pt")
    attempt("weights that are not what they claim")


SEEDS = [
    ("archive", "weights.pt", saved(STATE)),
    ("sequence", "weights.pt", saved(STATE, new=False)),
    ("safetensors", "weights.safetensors", save(STATE, {"ctta": "1", "num_classes": "3", "classes": "[]"})),
]
EACH = 480


def read(path):
    for key, value in read_state(path).items():
        assert isinstance(key, str)
        assert value.isfinite().all()


@pytest.mark.parametrize(("kind", "name", "content"), SEEDS, ids=[case[0] for case in SEEDS])
def test_damaged_weights_are_read_or_refused(tmp_path, attempt, kind, name, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused_of([content], tmp_path / name, read) == 0
    assert refused_of(mutated(content, EACH), tmp_path / name, read) > EACH / 10
    assert [file.name for file in tmp_path.iterdir()] == [name]
    attempt("damaged weights", EACH)


def test_damaged_pickles_of_weights_call_nothing(tmp_path, attempt):
    """Archives guard their members with checksums: here they are right again."""
    with zipfile.ZipFile(io.BytesIO(saved(STATE))) as archive:
        content = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    assert refused_of(map(pickled, mutated(content, EACH)), tmp_path / "weights.pt", read) > EACH / 10
    attempt("damaged weights", EACH)

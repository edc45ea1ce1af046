"""The public names: complete, lazy, and each method listed once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ctta
from command_line import PATIENCE
from ctta.methods import METHODS
from forks import Script

PUBLIC = """
    AdaContrast Adapter BNAdapt CMF Client CoTTA Config ConfigError ConjugatePL CttaError DSS DeYO Domain EATA ETA Event
    Execution Guard InputError LAME MEMO METHODS ModelError Normalization Normalized OptimizerSettings RDumb RMT
    ROID RoTTA SAR SHOT Sift Source StateError Step Stream TENT TTT TTTMAE TestAug Traits VDP calibrate_gate corruptions
    create load models norm_parameters setting views
"""


def test_what_is_promised_is_there():
    assert ctta.__all__ == dir(ctta) == PUBLIC.split()
    assert all(getattr(ctta, name) is not None for name in ctta.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ctta' has no attribute 'DSSS'"):
        ctta.DSSS  # noqa: B018


def test_every_file_of_a_method_is_in_the_table():
    files = {path.stem for path in Path(ctta.__path__[0], "methods").glob("*.py")} - {"__init__"}
    assert set(METHODS) == files
    for name, kind in METHODS.items():
        assert kind.name == kind.__module__.rpartition(".")[2] == name
        assert getattr(ctta, kind.__name__) is kind


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["dss"]


HELP = "from ctta.cli.app import app; app({words}, standalone_mode=False)"


@pytest.mark.parametrize(
    "code",
    ["import ctta; ctta.__version__", HELP.format(words=["--help"]), HELP.format(words=["run", "--help"])],
)
def test_torch_is_not_imported_before_it_is_needed(code):
    heavy = "heavy = {'torch', 'numpy', 'scipy', 'PIL', 'jinja2'} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", f"import sys; {code}; {heavy}"], check=True)


@pytest.mark.parametrize("use", ["corruptions.corrupt", "models.load", "views.ImageViews", "create", "DSS", "METHODS"])
def test_one_import_is_enough(use, tmp_path):
    (tmp_path / "code.py").write_text(f"import ctta; ctta.{use}")
    process = Script(tmp_path / "code.py")
    _, err = process.communicate(PATIENCE)
    assert process.returncode == 0, err

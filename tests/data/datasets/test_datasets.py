"""The table of data sets."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from ctta.base.errors import ConfigError
from ctta.data import datasets
from ctta.data.dataset import Data, DataSet
from ctta.data.datasets import DATASETS, open_stream, problems


def test_every_data_set_has_its_line():
    modules = [
        importlib.import_module(f"ctta.data.datasets.{module.name}")
        for module in pkgutil.iter_modules(datasets.__path__)
    ]
    written = [value for module in modules for value in vars(module).values() if isinstance(value, DataSet)]
    assert len(written) > 3
    assert {id(dataset) for dataset in written} == {id(dataset) for dataset in DATASETS.values()}


def test_what_a_data_set_needs_is_a_few_words():
    for name, dataset in DATASETS.items():
        assert dataset.about.endswith("."), name
        assert dataset.domains["paper"], name


def test_an_unknown_data_set_is_refused_with_the_nearest():
    (problem,) = problems(Data(dataset="cifar10c"))
    assert problem.startswith("There is no data set 'cifar10c'. Did you mean 'cifar10_c'?")
    with pytest.raises(ConfigError, match=r"needs a path: the folder with the \.npy files"):
        open_stream(Data(dataset="cifar10_c"))

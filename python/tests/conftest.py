"""Models for the tests: the demo model, and the golden checkpoints of random weights.

One thread each, unless a test is about threads: on a busy machine two that wait for each other take
many times as long.
"""

import json
import pathlib

import pytest

import adder

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests" / "golden"
FAMILIES = ["mamba1_hf", "mamba2_hf_groups4", "falcon_mamba"]  # one of each mixer

PROMPT = "It was a fine morning, and "


@pytest.fixture(scope="session")
def model():
    return adder.load(threads=1)


@pytest.fixture(scope="session")
def binary():
    """The command line of the same build."""
    path = pathlib.Path(adder._core.__file__).parents[2] / "apps" / "adder"
    if not path.is_file():
        pytest.skip("the command line is not built")
    return str(path)


@pytest.fixture(scope="session")
def golden():
    """golden(name) -> (model, expected.json)."""
    loaded = {}

    def load(name):
        if name not in loaded:
            expected = json.loads((GOLDEN / name / "expected.json").read_text())
            loaded[name] = adder.load(GOLDEN / name, threads=1, slots=4), expected
        return loaded[name]

    return load

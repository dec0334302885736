"""adder.load() and what it gives, on the demo model."""

import pytest

import adder


@pytest.fixture(scope="module")
def model():
    return adder.load()


def test_generates_what_the_command_line_does(model):
    text = model.generate("It was a fine morning, and ", max_tokens=24, temperature=0)
    assert isinstance(text, str) and len(text) >= 20
    assert text == model.generate("It was a fine morning, and ", max_tokens=24, temperature=0)


def test_bad_arguments_name_themselves(model):
    with pytest.raises(ValueError, match="temp: expected"):
        model.generate("a", temperature=-1)
    with pytest.raises(ValueError, match="device"):
        adder.load(device="tpu")

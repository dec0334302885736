"""What is wrong is named: the argument, what was expected, what was given."""

import numpy as np
import pytest

import adder
from conftest import GOLDEN, PROMPT


@pytest.mark.parametrize("option, value, error", [
    ("max_tokens", -1, ValueError), ("max_tokens", 1.5, TypeError), ("max_tokens", True, TypeError),
    ("temperature", -0.1, ValueError), ("temperature", float("nan"), ValueError),
    ("temperature", float("inf"), ValueError), ("temperature", "1", TypeError),
    ("temperature", None, TypeError), ("top_k", -1, ValueError), ("top_k", 2**40, ValueError),
    ("top_p", 1.1, ValueError), ("top_p", [1], TypeError), ("min_p", -1, ValueError),
    ("repeat_penalty", 0, ValueError), ("repeat_last_n", -1, ValueError), ("seed", -1, ValueError),
    ("seed", 2**64, ValueError), ("seed", None, TypeError), ("stop", [1], TypeError),
    ("stop", b"x", TypeError), ("stop_tokens", "x", TypeError), ("stop_tokens", [-1], ValueError),
    ("ignore_eos", 1, TypeError), ("logprobs", -1, ValueError), ("logprobs", 1000, ValueError),
    ("presence_penalty", 3, ValueError), ("frequency_penalty", float("nan"), ValueError),
    ("logit_bias", {65: float("nan")}, ValueError), ("logit_bias", {"a": 1}, TypeError),
    ("grammar", 1, TypeError), ("grammar", "root ::= (", ValueError),
    ("json_schema", "{", ValueError), ("json_schema", {"type": "no such"}, ValueError),
    ("keep_state", 1, TypeError), ("state", "x", TypeError), ("no_such_option", 1, TypeError),
])
def test_options(model, option, value, error):
    for use in (model.generate, model.stream, lambda p, **o: model.generate_batch([p], **o)):
        with pytest.raises(error) as raised:
            use(PROMPT, **{option: value})
        name = {"grammar": "grammar|gbnf", "json_schema": "json_schema"}.get(option, option)
        assert any(n in str(raised.value).lower() for n in name.split("|")), raised.value


@pytest.mark.parametrize("prompt, error", [
    ("", ValueError), ([], ValueError), (None, TypeError), (5, TypeError), (b"abc", TypeError),
    ([1.5], TypeError), (["a"], TypeError), ([-1], ValueError), ([2**31], ValueError),
    ([[1, 2]], ValueError), (np.zeros((2, 2), int), ValueError), (np.zeros(2), TypeError),
    ([256], ValueError), (np.array([], int), ValueError),
])
def test_prompts(model, prompt, error):
    for use in (model.generate, model.stream, lambda p: model.feed(None, p),
                lambda p: model.generate_batch(["a", p])):
        with pytest.raises(error, match="prompt|tokens"):
            use(prompt)
    if isinstance(prompt, str):
        return
    for use in (model.score, model.logits):
        with pytest.raises(error, match="text|ids|tokens"):
            use(prompt)


def test_surrogates_are_no_text(model):
    with pytest.raises(ValueError, match="prompt: expected text that UTF-8 can express"):
        model.generate("\ud800")


@pytest.mark.parametrize("last", [0, 4, -1])
def test_last(model, last):
    with pytest.raises(ValueError, match="last: expected 1 to 3"):
        model.logits("abc", last=last)


def test_embed(model):
    with pytest.raises(ValueError, match="pooling: expected 'mean' or 'last', got 'max'"):
        model.embed("a", pooling="max")
    with pytest.raises(ValueError, match=r"text\[1\]: expected at least 1 token"):
        model.embed(["a", ""])
    with pytest.raises(TypeError, match="text"):
        model.embed(["a", None])


def test_batches(model):
    with pytest.raises(ValueError, match="seeds: expected 2, one per prompt, got 3"):
        model.generate_batch(["a", "b"], seeds=[1, 2, 3])
    with pytest.raises(ValueError, match="states: expected 2"):
        model.generate_batch(["a", "b"], states=[None])
    with pytest.raises(TypeError, match=r"prompts\[1\]"):
        model.generate_batch(["a", 5])


def test_a_model_without_a_tokenizer(golden):
    model, _ = golden("mamba1_hf")
    for use in (lambda: model.generate("text"), lambda: model.tokenizer, lambda: model.score("text"),
                lambda: model.embed("text"), lambda: model.chat([{"role": "user", "content": "x"}]),
                lambda: model.generate([1], grammar='root ::= "a"'),
                lambda: model.generate([1], stop="x")):
        with pytest.raises(ValueError, match="tokenizer"):
            use()


def test_loading(tmp_path):
    with pytest.raises(ValueError, match="device"):
        adder.load(device="tpu")
    with pytest.raises((OSError, ValueError), match="no-such-folder"):
        adder.load(tmp_path / "no-such-folder")
    for option, value, error in (("threads", -1, ValueError), ("threads", "2", TypeError),
                                 ("pin", 1, TypeError), ("block", -1, ValueError),
                                 ("slots", -1, ValueError), ("slots", 1.5, TypeError)):
        with pytest.raises(error, match=option):
            adder.load(**{option: value})
    with pytest.raises(TypeError):
        adder.load(5)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text((GOLDEN / "mamba1_hf" / "config.json").read_text())
    weights = (GOLDEN / "mamba1_hf" / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ValueError, match="model.safetensors"):
        adder.load(folder)

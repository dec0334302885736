"""What is wrong is named: the argument, what was expected, what was given."""

import os
import pickle
import shutil

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
    ("temperature", 10**400, ValueError), ("stop", 5, TypeError), ("stop", "\ud800", ValueError),
    ("logit_bias", [(65, 1.0)], TypeError), ("logit_bias", {2**40: 1.0}, ValueError),
    ("json_schema", {"enum": {1}}, TypeError), ("json_schema", "\ud800", ValueError),
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
    for wrong in (["a", None], None, 5, b"a", {"a": 1}, {"a"}, iter(["a"])):
        with pytest.raises(TypeError, match="text"):
            model.embed(wrong)


def test_batches(model):
    with pytest.raises(ValueError, match="seeds: expected 2, one per prompt, got 3"):
        model.generate_batch(["a", "b"], seeds=[1, 2, 3])
    with pytest.raises(ValueError, match="states: expected 2"):
        model.generate_batch(["a", "b"], states=[None])
    with pytest.raises(TypeError, match=r"prompts\[1\]"):
        model.generate_batch(["a", 5])
    for wrong in ("ab", b"ab", None, 5):  # a text is not the prompts "a" and "b"
        with pytest.raises(TypeError, match="prompts: expected several, as a list"):
            model.generate_batch(wrong)
    with pytest.raises(TypeError, match="seeds: expected several"):
        model.generate_batch(["a"], seeds=1)
    assert model.generate_batch([]) == []


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
    with pytest.raises(TypeError, match="model: expected a path, got int"):
        adder.load(5)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text((GOLDEN / "mamba1_hf" / "config.json").read_text())
    weights = (GOLDEN / "mamba1_hf" / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ValueError, match="model.safetensors"):
        adder.load(folder)


def test_paths(model, tmp_path):
    state = model.feed(None, PROMPT)
    for use, name in ((adder.load, "model"), (model.load_state, "source"), (state.save, "path")):
        with pytest.raises(TypeError, match=f"{name}: expected a path, got int"):
            use(5)
        # What the system would take for another, shorter path.
        with pytest.raises(ValueError, match=f"{name}: expected a path without NUL"):
            use(str(tmp_path / "a\0b"))
    assert list(tmp_path.iterdir()) == []
    odd = os.fsencode(tmp_path) + b"/\xff\xfe \n"
    with pytest.raises(OSError, match="xff"):
        model.load_state(odd)
    with pytest.raises((OSError, ValueError), match="xff"):
        adder.load(odd)
    state.save(odd)
    assert np.array_equal(model.load_state(os.fsdecode(odd)).ssm(0), state.ssm(0))
    (tmp_path / os.fsdecode(b"m\xff")).symlink_to(GOLDEN / "mamba1_hf")
    named = adder.load(tmp_path / os.fsdecode(b"m\xff"), threads=1)
    assert os.fsencode(named._core.path).endswith(b"m\xff")
    assert len(named.generate([1, 2], max_tokens=2).tokens) <= 2


def test_files_that_vanish(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "mamba2_hf_groups4", folder)
    model = adder.load(folder, threads=1)
    wanted = model.logits([1, 2, 3])
    state = model.feed(None, [1, 2, 3])
    shutil.rmtree(folder)
    assert np.array_equal(model.logits([1, 2, 3]), wanted)
    assert np.array_equal(pickle.loads(pickle.dumps(state)).bind(model._core).ssm(0), state.ssm(0))
    state.save(tmp_path / "state")
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="state"):
        state.save(tmp_path / "state")
    with pytest.raises(OSError, match="state"):
        model.load_state(tmp_path / "state")


def test_pickles_that_are_damaged(model):
    make, (length, image, tokens, stretches) = model.feed(None, PROMPT).__reduce__()
    count = len(stretches)
    assert count == 1
    for damaged in ((length, image[:-1], tokens, stretches), (length, b"", tokens, stretches),
                    (length, bytes([image[0] ^ 1]) + image[1:], tokens, stretches),
                    (length, image, tokens[:-4], stretches), (length, image, tokens, [(length - 1, False)]),
                    (length, image, tokens, [(2**62, False)] * 4), (length, image, tokens, [(-1, False)]),
                    (length, image, b"\xff" * len(tokens), stretches)):
        with pytest.raises(ValueError, match="state"):
            model.generate("a", state=make(*damaged), max_tokens=1)


def test_states_come_from_models():
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="State: expected one of model.state"):
            adder.State(wrong)


def test_states_of_other_models(model, golden):
    other, _ = golden("mamba1_hf")
    state = model.feed(None, PROMPT)
    for use in (lambda: other.generate([1], state=state), lambda: other.load_state(state),
                lambda: other.feed(state, [1]), lambda: other.load_state(pickle.loads(pickle.dumps(state)))):
        with pytest.raises(ValueError, match="model|state"):
            use()
    # Two engines of one model are the same to it.
    twin = adder.load(threads=1, slots=1)
    assert twin.generate("a", state=state, seed=1).tokens == model.generate("a", state=state, seed=1).tokens

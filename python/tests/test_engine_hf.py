"""The adapter for code that is written for Hugging Face's models."""

import numpy as np
import pytest

from adder.hf import AdderForCausalLM
from conftest import FAMILIES


@pytest.fixture(scope="module", params=FAMILIES)
def case(golden, request):
    model, expected = golden(request.param)
    return AdderForCausalLM(model), expected["prompt"], expected["greedy"]


def maker(kind):
    if kind == "torch":
        return pytest.importorskip("torch").tensor
    return np.array if kind == "numpy" else list


@pytest.mark.parametrize("kind", ["list", "numpy", "torch"])
def test_greedy_ids_are_the_golden_ones_with_padding_on_the_left(case, kind):
    model, prompt, greedy = case
    make = maker(kind)
    ids = make([[7, 7] + prompt, [7, 9] + prompt, prompt + [7, 7], prompt[:1] * 31])
    mask = make([[0, 0] + [1] * 29, [0, 0] + [1] * 29, [1] * 29 + [0, 0], [1] * 31])
    out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=32, eos_token_id=[])
    assert type(out) is type(ids)
    rows = np.asarray(out)
    assert rows.shape == (4, 63) and np.array_equal(rows[:, :31], np.asarray(ids))
    assert all(row.tolist() == greedy for row in rows[:3, 31:])
    if kind == "torch":
        assert out.dtype == ids.dtype


def test_an_answer_ends_with_its_eos_and_is_padded(case):
    model, prompt, greedy = case
    ids = np.array([prompt, prompt[::-1]], np.int32)
    stop = greedy[4]
    at = greedy.index(stop)
    out = model.generate(ids, max_new_tokens=10, eos_token_id=stop, pad_token_id=3)
    assert out.dtype == np.int32
    assert out[0, 29 : 30 + at].tolist() == greedy[: at + 1]
    assert (out[0, 30 + at :] == 3).all()
    alone = model.generate(prompt, max_new_tokens=10, eos_token_id=[stop])
    assert alone == [prompt + greedy[: at + 1]]
    padded = model.generate(ids, max_new_tokens=10, eos_token_id=stop)
    assert (padded[0, 30 + at :] == stop).all()


def test_sampling(case):
    model, prompt, _ = case
    options = dict(max_new_tokens=8, do_sample=True, eos_token_id=[], num_return_sequences=3)
    out = np.asarray(model.generate([prompt], seed=5, **options))
    assert out.shape == (3, 37) and len({tuple(row) for row in out.tolist()}) == 3
    assert np.array_equal(out, model.generate([prompt], seed=5, **options))
    assert np.array_equal(out[1:], np.asarray(model.generate([prompt], seed=6, **options))[:2])
    cold = model.generate([prompt], max_new_tokens=8, do_sample=True, top_k=1, eos_token_id=[])
    assert cold == model.generate([prompt], max_new_tokens=8, temperature=3.0, eos_token_id=[])


def test_logits(case):
    model, prompt, _ = case
    out = model(np.array([[1, 1] + prompt]), np.array([[0, 0] + [1] * 29])).logits
    assert out.shape == (1, 31, model.model.config["vocab_rows"]) and not out[0, :2].any()
    assert np.array_equal(out[0, 2:], model.model.logits(prompt))


@pytest.mark.parametrize("ids, mask, match", [
    ([[1, 2], [3]], None, "input_ids"), ([[1.5]], None, "input_ids"), ([], None, "input_ids"),
    ([[[1]]], None, "input_ids"), ([[1, 2]], [[1]], "attention_mask: expected shape"),
    ([[1, 2]], [[0, 0]], "row 0"), ([[1, 2, 3]], [[1, 0, 1]], "side by side"),
    ([[1, 2]], [[1, 2]], "0 and 1"), ([[1, -2]], None, "ids from 0 on"),
])
@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")
def test_bad_input(golden, ids, mask, match):
    model = AdderForCausalLM(golden("mamba1_hf")[0])
    with pytest.raises(ValueError, match=match):
        model.generate(ids, mask)


@pytest.mark.parametrize("option", [
    dict(max_new_tokens=0), dict(num_return_sequences=2), dict(pad_token_id=-1),
    dict(repetition_penalty=0), dict(eos_token_id=[-1]), dict(do_sample=True, temperature=-1),
])
def test_bad_options(golden, option):
    model = AdderForCausalLM(golden("mamba1_hf")[0])
    with pytest.raises(ValueError, match=list(option)[-1]):
        model.generate([[1, 2]], **option)


def test_a_dtype_that_cannot_hold_the_answer(model):
    hf = AdderForCausalLM(model)  # 256 ids
    with pytest.raises(ValueError, match="input_ids: expected a dtype that holds ids up to 255, got int8"):
        hf.generate(np.array([[65, 66]], np.int8), max_new_tokens=2)
    with pytest.raises(ValueError, match="ids up to 1000, got uint8"):
        hf.generate(np.array([[65, 66]], np.uint8), max_new_tokens=2, pad_token_id=1000)
    assert hf.generate(np.array([[65, 66]], np.uint8), max_new_tokens=2).dtype == np.uint8

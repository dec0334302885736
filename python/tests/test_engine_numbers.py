"""score(), logits(), embed(), the tokenizer and chats."""

import json
import math
import subprocess

import numpy as np
import pytest

from conftest import FAMILIES, PROMPT

TEXT = "She was the youngest of the two daughters.\nÉté: 一二三\n"


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_the_golden_ones(golden, name):
    model, expected = golden(name)
    all_rows = model.logits(expected["prompt"])
    assert all_rows.shape == (29, model.config["vocab_rows"]) and all_rows.dtype == np.float32
    bar = dict(rtol=0, atol=2e-4)  # the project's, tests/golden/README.md
    np.testing.assert_allclose(all_rows[-1], expected["logits_last"], **bar)
    for row, wanted in expected["logits_rows"].items():
        np.testing.assert_allclose(all_rows[int(row)], wanted, **bar)
    assert np.array_equal(model.logits(expected["prompt"], last=3), all_rows[-3:])
    state = model.feed(None, expected["prompt"])
    assert np.array_equal(model.logits(expected["prompt"], last=1)[0], state.logits)


def test_scores_are_those_of_the_logits(model):
    score = model.score(TEXT)
    start = model._core.start_id
    ids = model.tokenizer.encode(TEXT)
    assert score.tokens == ids and score.bytes == len(TEXT.encode()) == len(ids)
    logits = model.logits([start, *ids])[:-1].astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    # doubles from the same float32 logits, but summed in another order
    np.testing.assert_allclose(score.logprobs, wanted[range(len(ids)), ids], rtol=0, atol=1e-9)
    assert np.array_equal(score.greedy, logits.argmax(axis=1) == ids)
    assert score.total == pytest.approx(score.logprobs.sum(), rel=1e-12)
    assert score.perplexity == pytest.approx(math.exp(-score.total / len(ids)), rel=1e-12)
    assert score.bits_per_byte == pytest.approx(-score.total / math.log(2) / len(ids), rel=1e-12)
    assert score.predicted == len(ids)


def test_a_first_id_is_not_predicted(model, golden):
    ids = model.tokenizer.encode(TEXT)
    score = model.score(ids)
    assert math.isnan(score.logprobs[0]) and not score.greedy[0]
    assert score.predicted == len(ids) - 1 and math.isfinite(score.total)
    assert score.total == pytest.approx(np.nansum(score.logprobs), rel=1e-12)
    single = model.score([65])
    assert (single.predicted, single.total, single.perplexity) == (0, 0.0, 0.0)
    random, expected = golden("mamba1_hf")
    score = random.score(expected["prompt"])
    assert score.bytes is None and score.bits_per_byte is None and score.perplexity > 1


def test_scores_are_those_of_the_command_line(model, binary, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    out = subprocess.run([binary, "score", str(tmp_path / "text"), "--json"], check=True,
                         capture_output=True, text=True).stdout
    total = json.loads(out)["total"]
    score = model.score(TEXT)
    # the sum is over lines there; doubles both
    assert score.total == pytest.approx(-total["nll"], rel=1e-12)
    assert (score.predicted, score.bytes) == (total["tokens"], total["bytes"])
    assert score.bits_per_byte == pytest.approx(total["bits_per_byte"], rel=1e-12)


def test_embeddings(model, golden):
    texts = [PROMPT, "x", TEXT * 20]
    together = model.embed(texts)
    assert together.shape == (3, model.config["d_model"]) and together.dtype == np.float32
    for text, vector in zip(texts, together):
        assert np.array_equal(model.embed(text), vector)
        assert np.array_equal(model.embed(model.tokenizer.encode(text)), vector)
        # float32 rounding of some hundred values of length 1 together
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    last = model.embed(texts, pooling="last")
    assert not np.array_equal(last, together) and np.array_equal(last[1], together[1])
    assert model.embed([]).shape == (0, model.config["d_model"])
    random, _ = golden("falcon_mamba")
    assert random.embed([[1, 2], [3]]).shape == (2, random.config["d_model"])
    assert random.embed(np.array([1, 2])).shape == (random.config["d_model"],)


def test_the_tokenizer(model):
    t = model.tokenizer
    assert len(t) == t.vocab_size == 256 and t.kind == "bytes" and t.eos_id == 0
    for text in (TEXT, "", "\0", "a" * 10000):
        assert t.decode(t.encode(text)) == text
    assert t.encode("é") == [0xC3, 0xA9]
    assert t.decode([0xC3]) == "\ufffd" and t.decode_bytes([0xC3]) == b"\xc3"
    assert t.token_bytes(65) == b"A" and isinstance(t.is_special(0), bool)
    assert t.decode(np.array([65, 66])) == "AB"
    assert t.token_to_id("no such token") is None
    for use in (t.token_bytes, t.is_special, lambda i: t.decode([i])):
        with pytest.raises(ValueError, match="0 to 255, got 256|expected.*256"):
            use(256)
    with pytest.raises(TypeError, match="text: expected a str, got bytes"):
        t.encode(b"abc")


def test_chats(model):
    messages = [{"role": "user", "content": "Good morning"}]
    prompt = model.chat_prompt(messages)
    answer = model.chat(messages, max_tokens=12, temperature=0, keep_state=True)
    assert answer.text == model.generate(prompt, max_tokens=12, temperature=0).text
    assert answer.prompt_tokens == len(prompt)
    assert "<|im_start|>" in model.tokenizer.decode(model.chat_prompt(messages, template="chatml"))
    falcon = model.chat(messages, template="falcon", max_tokens=12, seed=2)
    assert not falcon.text.startswith(" ")
    assert "".join(model.chat_stream(messages, template="falcon", max_tokens=12, seed=2)) == falcon.text
    further = model.chat([{"role": "user", "content": "And?"}], state=answer.state, max_tokens=4)
    assert further.cached_tokens == answer.state.length
    for bad, error in (("hi", TypeError), ([], ValueError), ([{"role": "user"}], TypeError),
                       ([{"role": "wizard", "content": "hi"}], ValueError), ([1], TypeError), (None, TypeError),
                       (5, TypeError), ([{"role": "user", "content": "\ud800"}], ValueError)):
        with pytest.raises(error, match="message|role"):
            model.chat(bad)
    with pytest.raises(ValueError, match="template: expected one of plain, chatml"):
        model.chat(messages, template="no such")

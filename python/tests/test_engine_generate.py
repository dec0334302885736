"""generate(), stream() and generate_batch()."""

import json

import numpy as np
import pytest

import adder
from conftest import FAMILIES, PROMPT


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.uint8)])
def test_greedy_ids_are_the_golden_ones(golden, name, kind):
    model, expected = golden(name)
    answer = model.generate(kind(expected["prompt"]), max_tokens=32, temperature=0, ignore_eos=True)
    assert answer.tokens == expected["greedy"]
    assert answer.finish_reason == "length"
    assert (answer.prompt_tokens, answer.cached_tokens) == (29, 0)
    assert answer.text == ""  # no tokenizer


def test_an_answer_is_its_text(model):
    answer = model.generate(PROMPT, max_tokens=24, temperature=0)
    assert str(answer) == f"{answer}" == answer.text and len(answer.text) == 24
    assert model.tokenizer.decode(answer.tokens) == answer.text
    assert answer.timings.prefill_s > 0 and answer.timings.decode_s > 0
    assert answer.logprobs is None
    with pytest.raises(ValueError, match="keep_state=True"):
        answer.state


def test_sampling_repeats_and_depends_on_its_options(model):
    def text(**options):
        return model.generate(PROMPT, max_tokens=40, **options).text

    assert text(seed=3) == text(seed=3) != text(seed=4)
    assert text(seed=3, top_k=1) == text(temperature=0)
    assert text(seed=3, top_p=0.0) == text(temperature=0)
    assert text(seed=3, min_p=1.0) == text(temperature=0)
    assert text(seed=3, temperature=2.0) != text(seed=3)
    assert text(temperature=0, repeat_penalty=5.0) != text(temperature=0)
    assert "e" not in text(logit_bias={ord("e"): -100})
    assert text(temperature=0, frequency_penalty=2, presence_penalty=2) != text(temperature=0)


def test_stops(model):
    whole = model.generate(PROMPT, max_tokens=40, temperature=0).text
    stop = whole[10:13]
    at = whole.index(stop)
    answer = model.generate(PROMPT, max_tokens=40, temperature=0, stop=stop)
    assert (answer.text, answer.finish_reason) == (whole[:at], "stop")
    assert model.generate(PROMPT, max_tokens=40, temperature=0, stop=["@@", stop]).text == whole[:at]
    answer = model.generate(PROMPT, max_tokens=40, temperature=0, stop_tokens=[ord(whole[5])])
    assert (answer.text, answer.finish_reason) == (whole[: whole.index(whole[5])], "stop")


def test_logprobs_are_those_of_the_logits(model):
    answer = model.generate(PROMPT, max_tokens=5, temperature=0, logprobs=3)
    assert [p.token for p in answer.logprobs] == answer.tokens
    for p in answer.logprobs:
        assert [t.logprob for t in p.top] == sorted((t.logprob for t in p.top), reverse=True)
        assert len(p.top) == 3 and p.top[0].token == p.token and p.text == chr(p.token)
    logits = model.logits(PROMPT + answer.text, last=6)[:5].astype(np.float64)
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    got = [p.logprob for p in answer.logprobs]
    # float32 logits of about 20, and a prompt of one token more is cut into other pieces
    np.testing.assert_allclose(got, wanted[range(5), answer.tokens], rtol=0, atol=1e-4)


def test_grammars_bound_the_answer(model):
    answer = model.generate("Number: ", max_tokens=8, grammar='root ::= "4" [0-9] "x"')
    assert answer.text[0] == "4" and answer.text[1].isdigit() and answer.text[2:] == "x"
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}
    for given in (schema, json.dumps(schema)):
        answer = model.generate("JSON: ", max_tokens=60, json_schema=given)
        assert isinstance(json.loads(answer.text)["a"], bool)


def test_a_stream_gives_the_same_text_in_pieces(model):
    whole = model.generate(PROMPT, max_tokens=30, seed=1)
    stream = model.stream(PROMPT, max_tokens=30, seed=1)
    with pytest.raises(ValueError, match="read to its end"):
        stream.generation
    pieces = list(stream)
    assert "".join(pieces) == whole.text and len(pieces) == 30
    assert stream.generation.tokens == whole.tokens
    assert list(stream) == []


def test_pieces_are_whole_characters(model):
    # The grammar lets through only text of three bytes per character, the tokens are bytes.
    after = model.feed(None, "x")
    stream = model.stream("", state=after, max_tokens=30, grammar="root ::= [一-十]{10}")
    pieces = list(stream)
    assert len(stream.generation.tokens) == 30 and len(pieces) == 10
    assert all(len(piece) == 1 and len(piece.encode()) == 3 for piece in pieces)
    # Cut inside a character: what there is of it is shown as U+FFFD.
    pieces = list(model.stream("x", max_tokens=4, grammar="root ::= [一-十]{2}"))
    assert [len(piece) for piece in pieces] == [1, 1] and pieces[1] == "\ufffd"


def test_streams_interleave(model):
    seeds = range(20)  # more than slots: some wait on the host between their steps
    assert len(seeds) > model.slots
    alone = [model.generate(PROMPT, max_tokens=12, seed=s).text for s in seeds]
    streams = [model.stream(PROMPT, max_tokens=12, seed=s) for s in seeds]
    texts = [""] * len(streams)
    for _ in range(12):
        for i, stream in enumerate(streams):
            texts[i] += next(stream)
    assert texts == alone
    assert all(next(stream, None) is None for stream in streams)


def test_a_stream_that_is_left_holds_nothing(model):
    wanted = model.generate(PROMPT, max_tokens=4, seed=1).text
    for _ in range(3 * model.slots):
        next(model.stream(PROMPT))  # dropped at once
    kept = []
    for _ in range(model.slots):
        with model.stream(PROMPT) as stream:
            next(stream)
            kept.append(stream)
    assert all(list(stream) == [] for stream in kept)
    with pytest.raises(ValueError, match="closed"):
        kept[0].generation
    assert model.generate(PROMPT, max_tokens=4, seed=1).text == wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_has_the_bits_of_each_alone(golden, name):
    model, expected = golden(name)
    prompts = [expected["prompt"][:n] for n in (1, 3, 29, 7, 12, 2, 20)]  # more than its slots
    options = dict(max_tokens=9, logprobs=2, ignore_eos=True)
    together = model.generate_batch(prompts, seeds=range(7), **options)
    for i, (prompt, answer) in enumerate(zip(prompts, together)):
        alone = model.generate(prompt, seed=i, **options)
        assert (answer.tokens, answer.logprobs) == (alone.tokens, alone.logprobs)
    assert model.generate_batch([]) == []


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("block", [64, 128])
def test_blocks_and_threads_change_nothing(golden, name, block):
    model, expected = golden(name)
    other = adder.load(model._core.path, threads=2, block=block, slots=1)
    prompt = expected["prompt"] * 10
    wanted = model.generate(prompt, max_tokens=8, ignore_eos=True, logprobs=0)
    got = other.generate(prompt, max_tokens=8, ignore_eos=True, logprobs=0)
    assert (got.tokens, got.logprobs) == (wanted.tokens, wanted.logprobs)


def test_options_are_left_alone(model):
    options = {"max_tokens": 3, "seed": 5}
    model.generate(PROMPT, **options)
    list(model.stream(PROMPT, **options))
    assert options == {"max_tokens": 3, "seed": 5}

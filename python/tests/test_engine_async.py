"""The methods for asyncio."""

import asyncio
import pickle
import time

import numpy as np
import pytest

from conftest import PROMPT


def test_the_same_answers(model):
    async def run():
        answer = await model.agenerate(PROMPT, max_tokens=20, seed=1, keep_state=True)
        pieces = [piece async for piece in model.astream(PROMPT, max_tokens=20, seed=1)]
        state = await model.afeed(None, PROMPT)
        return answer, pieces, state, await model.ascore(PROMPT), await model.aembed([PROMPT, "x"])

    answer, pieces, state, score, vectors = asyncio.run(run())
    wanted = model.generate(PROMPT, max_tokens=20, seed=1)
    assert answer.tokens == wanted.tokens and answer.state.length == len(PROMPT) + 20
    assert "".join(pieces) == wanted.text and len(pieces) > 1
    assert np.array_equal(state.ssm(0), model.feed(None, PROMPT).ssm(0))
    assert score.total == model.score(PROMPT).total
    assert np.array_equal(vectors, model.embed([PROMPT, "x"]))
    assert vectors[1].shape == model.embed("x").shape


MESSAGES = [{"role": "user", "content": "Good morning"}]


@pytest.mark.parametrize("template", ["", "falcon"])  # Falcon's answers begin with a blank
def test_chats(model, template):
    options = dict(template=template, max_tokens=20, seed=3)

    async def run():
        answer = await model.achat(MESSAGES, keep_state=True, **options)
        pieces = [piece async for piece in model.achat_stream(MESSAGES, **options)]
        further = await model.achat(MESSAGES, state=answer.state, **options)
        return answer, pieces, further

    answer, pieces, further = asyncio.run(run())
    wanted = model.chat(MESSAGES, **options)
    assert (answer.text, answer.tokens) == (wanted.text, wanted.tokens)
    assert "".join(pieces) == wanted.text and len(pieces) > 1
    assert further.cached_tokens == answer.state.length
    with model.chat_stream(MESSAGES, **options) as stream:
        assert list(stream) == pieces
        assert stream.generation.text == wanted.text


def test_logits(model):
    rows = asyncio.run(model.alogits(PROMPT, last=3))
    assert np.array_equal(rows, model.logits(PROMPT, last=3))


def test_many_requests_at_once(model):
    seeds = range(30)  # more than slots, and than threads

    async def stream(seed):
        return "".join([p async for p in model.astream(PROMPT, max_tokens=10, seed=seed)])

    async def run():
        whole = [model.agenerate(PROMPT, max_tokens=10, seed=s) for s in seeds]
        return await asyncio.gather(*whole, *[stream(s) for s in seeds])

    results = asyncio.run(run())
    wanted = [model.generate(PROMPT, max_tokens=10, seed=s).text for s in seeds]
    assert [str(r) for r in results] == wanted * 2


def test_the_loop_goes_on_meanwhile(model):
    async def run():
        task = asyncio.create_task(model.ascore("abcdefgh" * 2000))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(run()) >= 5


@pytest.mark.parametrize("name", ["agenerate", "astream", "afeed", "ascore", "alogits", "aembed", "arollback"])
def test_cancelling_ends_the_work(golden, name):
    model, expected = golden("mamba1_hf")
    long = [5] * 10**6

    async def work():
        if name == "agenerate":
            await model.agenerate([5], max_tokens=10**9, ignore_eos=True)
        elif name == "astream":
            async for _ in model.astream([5], max_tokens=10**9, ignore_eos=True):
                pass
        elif name == "afeed":
            await model.afeed(None, long)
        elif name == "ascore":
            await model.ascore(long)
        elif name == "alogits":
            await model.alogits(long, last=1)
        elif name == "arollback":
            await model.arollback(state, 1)
        else:
            await model.aembed(long)

    # A rollback to where no state is kept reads the tokens before it again: a second or so.
    state = model.feed(None, long[: 3 * 10**5]) if name == "arollback" else None

    async def run():
        task = asyncio.create_task(work())
        await asyncio.sleep(0.05 if name == "arollback" else 0.3)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        started = time.monotonic()
        # Its thread is free within a step: all of them are needed for this.
        answers = [model.agenerate(expected["prompt"], max_tokens=2) for _ in range(2 * model.slots)]
        await asyncio.gather(*answers)
        return time.monotonic() - started

    assert asyncio.run(run()) < 2.0  # much less on an idle machine


def test_states(model, tmp_path):
    async def run():
        state = await model.afeed(None, PROMPT)
        back = await model.arollback(state, 5)
        await model.asave_state(state, tmp_path / "a.state")
        loaded = await model.aload_state(tmp_path / "a.state")
        pickled = pickle.loads(pickle.dumps(state))
        restored = await model.aload_state(pickled)
        assert await model.aload_state(state) is state
        assert (await model.arollback(pickled, 5)).length == state.length - 5
        await model.asave_state(pickled, tmp_path / "b.state")
        return state, back, loaded, restored

    state, back, loaded, restored = asyncio.run(run())
    assert (tmp_path / "a.state").read_bytes() == (tmp_path / "b.state").read_bytes()
    for got, want in ((back, state.rollback(5)), (loaded, state), (restored, state)):
        assert got.length == want.length
        np.testing.assert_array_equal(got.ssm(0), want.ssm(0))
    assert loaded.rollback_limit == 0 and restored.rollback_limit == state.length


def test_the_loop_goes_on_during_a_rollback(model):
    async def run():
        state = await model.afeed(None, "abcdefgh" * 2000)
        task = asyncio.create_task(model.arollback(state, 3))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(run()) >= 5


def test_leaving_a_stream_early(model):
    async def run():
        async for piece in model.astream(PROMPT, max_tokens=10**6):
            return piece

    assert asyncio.run(run())
    assert len(model.generate(PROMPT, max_tokens=3, seed=1).tokens) == 3


def test_errors_arrive(model):
    async def run():
        with pytest.raises(ValueError, match="temperature"):
            await model.agenerate(PROMPT, temperature=-1)
        with pytest.raises(TypeError, match="prompt"):
            async for _ in model.astream(None):
                pass
        with pytest.raises(ValueError, match="pooling"):
            await model.aembed(PROMPT, pooling="max")
        with pytest.raises(ValueError, match="last"):
            await model.alogits(PROMPT, last=0)
        with pytest.raises(TypeError, match="messages"):
            await model.achat("Hi")
        with pytest.raises(ValueError, match="template"):
            async for _ in model.achat_stream(MESSAGES, template="no such"):
                pass
        state = await model.afeed(None, PROMPT)
        with pytest.raises(ValueError, match="tokens"):
            await model.arollback(state, len(PROMPT) + 1)
        with pytest.raises(TypeError, match="state: expected an adder.State, got str"):
            await model.arollback("state", 1)
        with pytest.raises(TypeError, match="state: expected an adder.State, got NoneType"):
            await model.asave_state(None, "x")
        with pytest.raises(TypeError, match="path"):
            await model.asave_state(state, 5)
        with pytest.raises(OSError, match="no/such"):
            await model.asave_state(state, "/no/such/file")
        with pytest.raises(OSError, match="no/such"):
            await model.aload_state("/no/such/file")

    asyncio.run(run())

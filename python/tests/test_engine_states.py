"""States: going on, forking, rolling back, saving, pickling, and looking inside."""

import copy
import pickle
import subprocess

import numpy as np
import pytest

import adder
from conftest import FAMILIES, PROMPT


def same(a, b):
    """The same bits: state of all layers, logits, tokens."""
    layers = a._core.model.config["n_layer"]
    return (
        a.length == b.length
        and np.array_equal(a.tokens, b.tokens)
        and np.array_equal(a.logits, b.logits)
        and all(np.array_equal(a.conv(i), b.conv(i)) for i in range(layers))
        and all(np.array_equal(a.ssm(i), b.ssm(i)) for i in range(layers))
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_views_are_the_golden_state(golden, name):
    model, expected = golden(name)
    state = model.feed(None, expected["prompt"])
    assert (state.length, len(state), list(state.tokens)) == (29, 29, expected["prompt"])
    for view, key in ((state.conv(0), "conv_state_l0"), (state.ssm(0), "ssm_state_l0")):
        wanted = np.array(expected[key]["data"]).reshape(expected[key]["shape"])
        assert view.shape == wanted.shape and view.dtype == np.float32
        # tests/golden/README.md: the numbers are rounded to 6 digits, float32 is within 1e-5 of them
        np.testing.assert_allclose(view, wanted, rtol=1e-4, atol=2e-5)
        assert not view.flags.writeable and not view.flags.owndata
        with pytest.raises(ValueError):
            view[0] = 1
    wanted = np.array(expected["logits_last"])
    np.testing.assert_allclose(state.logits, wanted, rtol=0, atol=2e-4)  # the project's bar
    assert model.config["state_bytes"] == sum(
        state.conv(i).nbytes + state.ssm(i).nbytes for i in range(model.config["n_layer"])
    )


def test_a_view_outlives_its_state(model):
    view = model.feed(None, PROMPT).ssm(1)
    before = view.copy()
    for i in range(20):
        model.feed(None, PROMPT + str(i))
    assert np.array_equal(view, before)


@pytest.mark.parametrize("name", FAMILIES)
def test_going_on_equals_one_run(golden, name):
    model, expected = golden(name)
    whole = model.generate(expected["prompt"], max_tokens=32, temperature=0, ignore_eos=True)
    state, tokens = model.feed(model.state(), expected["prompt"]), []
    for _ in range(4):
        part = model.generate([], state=state, max_tokens=8, temperature=0, ignore_eos=True)
        assert part.cached_tokens == part.prompt_tokens == state.length
        state, tokens = part.state, tokens + part.tokens
    assert tokens == whole.tokens == expected["greedy"]
    # 28 tokens as a prompt and one more: the sequential scan of Mamba-1 has the same bits.
    if "mamba2" not in name:
        parts = model.feed(model.feed(None, expected["prompt"][:28]), expected["prompt"][28:])
        assert same(parts, model.feed(None, expected["prompt"]))


def test_states_are_values(model):
    state = model.feed(None, PROMPT)
    before = state.ssm(0).copy()
    answers = {model.generate("", state=state, seed=s, max_tokens=9).text for s in (1, 2, 3)}
    assert len(answers) == 3 and np.array_equal(before, state.ssm(0))
    for other in (state.fork(), copy.copy(state), copy.deepcopy(state)):
        assert same(other, state)
        assert model.generate("", state=other, seed=1, max_tokens=9).text in answers


def test_what_is_kept(model):
    state = model.feed(None, "abc")
    assert model.generate("d", state=state, max_tokens=2).state.length == 6
    with pytest.raises(ValueError, match="keep_state"):
        model.generate("d", state=state, max_tokens=2, keep_state=False).state
    assert model.generate("abc", max_tokens=2, keep_state=True).state.length == 5
    stream = model.stream("abc", max_tokens=2, keep_state=True)
    assert len(list(stream)) == 2 and stream.generation.state.length == 5
    empty = model.state()
    assert (empty.length, empty.logits, list(empty.tokens)) == (0, None, [])
    assert model.generate("abc", state=empty, max_tokens=5).text == model.generate(
        "abc", max_tokens=5).text


@pytest.mark.parametrize("name", FAMILIES)
def test_rollback_is_exact(golden, name):
    model, expected = golden(name)
    ids = expected["prompt"] * 6
    steps = [model.feed(None, ids[:100])]
    steps.append(model.generate(ids[100:110], state=steps[-1], max_tokens=12, ignore_eos=True).state)
    steps.append(model.feed(steps[-1], ids[110:113]))
    steps.append(model.generate([], state=steps[-1], max_tokens=5, ignore_eos=True).state)
    last = steps[-1]
    assert last.length == last.rollback_limit == 130
    for step in steps:
        assert same(last.rollback(130 - step.length), step)
    # Into the middle of prompts and answers
    tokens = list(last.tokens)
    assert same(last.rollback(130 - 70), model.feed(None, tokens[:70]))
    assert same(last.rollback(130 - 104), model.feed(steps[0], tokens[100:104]))
    answer = model.generate(ids[100:110], state=steps[0], max_tokens=7, ignore_eos=True)
    assert same(last.rollback(130 - 117), answer.state)
    twice = last.rollback(20).rollback(30)
    assert same(twice, last.rollback(50))
    assert last.rollback(130).length == 0 and same(last.rollback(0), last)
    # and on from there
    again = model.generate([], state=last.rollback(130 - 117), max_tokens=5, ignore_eos=True)
    assert again.tokens == model.generate([], state=answer.state, max_tokens=5, ignore_eos=True).tokens
    with pytest.raises(ValueError, match="expected 0 to 130, got 131"):
        last.rollback(131)


def test_a_cancelled_prompt_leaves_what_was_processed(model):
    stream = model.stream(PROMPT, max_tokens=100, keep_state=True)
    next(stream)
    stream._sequence.cancel()
    rest = "".join(stream)
    answer = stream.generation
    assert answer.finish_reason == "cancelled" and answer.text.endswith(rest)
    assert answer.state.length == len(PROMPT) + len(answer.tokens)
    assert same(answer.state.rollback(len(answer.tokens)), model.feed(None, PROMPT))


@pytest.mark.parametrize("name", FAMILIES)
def test_files(golden, name, tmp_path):
    model, expected = golden(name)
    state = model.feed(None, expected["prompt"])
    state.save(tmp_path / "a.state")
    loaded = model.load_state(str(tmp_path / "a.state"))
    assert same(loaded, state) and loaded.rollback_limit == 0
    further = model.feed(loaded, [1, 2, 3])
    assert same(further, model.feed(state, [1, 2, 3])) and further.rollback_limit == 3
    assert same(further.rollback(3), state)
    with pytest.raises(ValueError, match="expected 0 to 3, got 4"):
        further.rollback(4)
    with pytest.raises(OSError, match="nothing-there"):
        model.load_state(tmp_path / "nothing-there")
    with pytest.raises(OSError, match="no-folder"):
        state.save(tmp_path / "no-folder" / "a.state")
    damaged = bytearray((tmp_path / "a.state").read_bytes())
    damaged[-40] ^= 1
    (tmp_path / "b.state").write_bytes(damaged)
    with pytest.raises(ValueError, match="SHA-256"):
        model.load_state(tmp_path / "b.state")
    (tmp_path / "c.state").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(ValueError, match="truncated"):
        model.load_state(tmp_path / "c.state")


def test_a_long_state_from_a_file_knows_its_newest_tokens(model, tmp_path):
    state = model.feed(None, PROMPT * 60)
    state.save(tmp_path / "a.state")
    loaded = model.load_state(tmp_path / "a.state")
    assert loaded.length == state.length == 1620 and len(loaded.tokens) == 1024
    assert np.array_equal(loaded.tokens, state.tokens[-1024:])
    again = pickle.loads(pickle.dumps(model.feed(loaded, "abc")))
    assert len(again) == 1623
    answer = model.generate("abc", state=loaded, max_tokens=9, repeat_penalty=1.3)
    assert answer.text == model.generate("abc", state=state, max_tokens=9, repeat_penalty=1.3).text
    assert same(answer.state.rollback(9), model.feed(loaded, "abc"))
    assert model.generate("", state=again, max_tokens=9).text == model.generate(
        "", state=model.feed(state, "abc"), max_tokens=9).text


def test_the_command_line_reads_and_writes_the_same_files(model, binary, tmp_path):
    def run(*arguments):
        command = [binary, "run", *arguments, "--temp", "0", "--threads", "1"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    whole = model.generate(PROMPT, max_tokens=20, temperature=0).text
    model.feed(None, PROMPT).save(tmp_path / "ours")
    out = run("-n", "10", "--state-in", str(tmp_path / "ours"), "--state-out", str(tmp_path / "its"))
    assert out == whole[:10] + "\n"
    loaded = model.load_state(tmp_path / "its")
    assert loaded.length == len(PROMPT) + 10
    assert model.generate("", state=loaded, max_tokens=10, temperature=0).text == whole[10:]
    loaded.save(tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "its").read_bytes()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(golden, protocol):
    model, expected = golden("mamba2_hf_groups4")
    first = model.feed(None, expected["prompt"])
    state = model.generate([5], state=first, max_tokens=6, ignore_eos=True).state
    copied = pickle.loads(pickle.dumps(state, protocol))
    assert copied.length == state.length
    with pytest.raises(ValueError, match="model.load_state"):
        copied.ssm(0)
    assert pickle.dumps(copied, protocol) == pickle.dumps(state, protocol)
    bound = model.load_state(copied)
    assert same(bound, state) and same(bound.rollback(7), first)
    a, b = (model.generate([], state=s, max_tokens=5, ignore_eos=True) for s in (copied, state))
    assert a.tokens == b.tokens and same(a.state, b.state)
    assert pickle.loads(pickle.dumps(model.state(), protocol)).length == 0


def test_states_of_other_models_are_refused(golden, tmp_path):
    model, expected = golden("mamba1_hf")
    other, _ = golden("falcon_mamba")
    state = model.feed(None, expected["prompt"])
    state.save(tmp_path / "a.state")
    for use in (
        lambda: other.load_state(tmp_path / "a.state"),
        lambda: other.load_state(pickle.loads(pickle.dumps(state))),
        lambda: other.generate([1], state=state),
        lambda: other.feed(pickle.loads(pickle.dumps(state)), [1]),
    ):
        with pytest.raises(ValueError, match="saved with another model"):
            use()
    # The same model, loaded twice, is the same.
    twin = adder.load(model._core.path, threads=1, slots=1)
    assert same(twin.feed(state, [1, 2]), model.feed(state, [1, 2]))


def test_forged_pickles_are_refused(golden):
    model, expected = golden("mamba1_hf")
    length, image, tokens, stretches = model.feed(None, expected["prompt"])._pickle()
    wrong = b"\x01" * len(tokens)
    for parts in (
        (length, image[:-1], tokens, stretches),
        (length, b"", tokens, stretches),
        (length, image, wrong, stretches),
        (length, image, tokens[4:], stretches),
        (length, image, tokens, [(length + 1, False)]),
        (length, image, tokens, [(-1, False)]),
        (length, image, tokens, [(length, False), (2**60, True)]),
    ):
        with pytest.raises(ValueError, match="state"):
            model.load_state(adder.State(None, parts))


def test_bad_layers_and_empty_states(model):
    state = model.feed(None, "abc")
    for layer in (-1, model.config["n_layer"]):
        for view in (state.conv, state.ssm):
            with pytest.raises(ValueError, match="layer: expected 0 to"):
                view(layer)
    with pytest.raises(TypeError, match="layer"):
        state.conv(0.5)
    empty = model.state()
    for use in (lambda: empty.ssm(0), lambda: empty.save("x"), lambda: model.generate("", state=empty)):
        with pytest.raises(ValueError, match="nothing has been processed|at least 1 token"):
            use()

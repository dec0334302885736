"""The model class for lm-evaluation-harness: with the real package where it is installed, else with
what its guide for new models says of LM and register_model."""

import dataclasses
import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest

from conftest import PROMPT


@dataclasses.dataclass
class Instance:
    args: Any


@pytest.fixture(scope="module")
def registry():
    """The models that are registered, by name."""
    if importlib.util.find_spec("lm_eval") is not None:
        from lm_eval.api.registry import get_model

        yield get_model
        return
    classes = {}

    class LM:
        def __init__(self):
            self.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)

    def register_model(*names):
        return lambda c: [classes.__setitem__(name, c) for name in names] and c

    modules = {
        "lm_eval": types.ModuleType("lm_eval"),
        "lm_eval.api": types.ModuleType("lm_eval.api"),
        "lm_eval.api.model": types.ModuleType("lm_eval.api.model"),
        "lm_eval.api.registry": types.ModuleType("lm_eval.api.registry"),
    }
    modules["lm_eval.api.model"].LM = LM
    modules["lm_eval.api.registry"].register_model = register_model
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield classes.__getitem__
        sys.modules.pop("adder.lm_eval", None)


@pytest.fixture(scope="module")
def lm(registry, model):
    import adder.lm_eval

    assert registry("adder") is adder.lm_eval.AdderLM
    return adder.lm_eval.AdderLM(model, max_gen_toks=16)


def test_loglikelihood(lm, model):
    greedy = model.generate(PROMPT, max_tokens=6, temperature=0).text
    pairs = [(PROMPT, greedy), (PROMPT, "zzz"), ("", "The"), ("It", " was"), (PROMPT, ""), ("  ", "a")]
    results = lm.loglikelihood([Instance(pair) for pair in pairs])
    assert [is_greedy for _, is_greedy in results] == [True, False, results[2][1], results[3][1], True,
                                                       results[5][1]]
    start = model._core.start_id
    for (context, continuation), (value, is_greedy) in zip(pairs, results):
        ids = (model.tokenizer.encode(context) or [start]) + model.tokenizer.encode(continuation)
        count = len(model.tokenizer.encode(continuation))
        if context == PROMPT:  # its last blank is scored with the continuation
            count += bool(continuation) or 1
        if context == "  ":
            ids, count = [start, *ids], 3
        logits = model.logits(ids)[:-1].astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        wanted = logprobs[range(len(ids) - 1), ids[1:]][len(ids) - 1 - count :].sum()
        # doubles from the same float32 logits, but summed in another order
        assert value == pytest.approx(wanted, abs=1e-8)
        assert isinstance(value, float) and isinstance(is_greedy, bool)


def test_requests_that_share_steps_have_the_same_bits(lm):
    contexts = ["It", PROMPT, PROMPT * 30, "", "The end of " * 5]
    answers = [" a", " the second", " was " * 60, "x", "y" * 300]
    pairs = [(c, a) for c in contexts for a in answers] + [(c, " so") for c in contexts]
    together = lm.loglikelihood([Instance(pair) for pair in pairs])
    assert together == [lm.loglikelihood([Instance(pair)])[0] for pair in pairs]
    for pair, result in zip(pairs, together):
        before, after = lm._encode_pair(*pair)
        nll, best = lm.model._core.next_token(before + after, None)
        assert result == (-np.sum(nll[-len(after) :]), np.array_equal(best[-len(after) :], after))


def test_more_requests_than_one_share(lm, monkeypatch):
    pairs = [(PROMPT, " " + "abc"[i % 3] * i) if i % 4 else ("", "") for i in range(14)]
    wanted = lm.loglikelihood([Instance(pair) for pair in pairs])
    cached = []
    monkeypatch.setattr(sys.modules["adder.lm_eval"], "_SHARE", 4)
    monkeypatch.setattr(lm, "cache_hook",
                        types.SimpleNamespace(add_partial=lambda kind, args, result: cached.append((args, result))))
    assert lm.loglikelihood([Instance(pair) for pair in pairs]) == wanted
    assert cached == list(zip(pairs, wanted))


def test_rolling(lm, model):
    texts = [PROMPT, PROMPT * 50]
    results = lm.loglikelihood_rolling([Instance((text,)) for text in texts])
    for text, result in zip(texts, results):
        assert result == pytest.approx(model.score(text).total, rel=1e-12)


def test_generate_until(lm, model):
    whole = model.generate(PROMPT, max_tokens=16, temperature=0).text
    requests = [
        (PROMPT, {"until": [whole[5:7]], "max_gen_toks": 12}),
        (PROMPT, {"until": whole[5:7], "do_sample": False, "temperature": 0.7}),
        (PROMPT, {}),
        ("", {"max_gen_toks": 3}),
        (PROMPT, {"do_sample": True, "temperature": 1.5, "max_gen_toks": 16, "seed": 2}),
        (PROMPT, {"until": [whole[5:7]], "max_gen_toks": 12}),
    ]
    got = lm.generate_until([Instance(request) for request in requests])
    cut = whole[: whole.index(whole[5:7])]
    assert got[:3] == [cut, cut, whole] and got[5] == cut
    assert len(got[3]) <= 3 and got[4] != whole
    with pytest.raises(ValueError, match="num_beams"):
        lm.generate_until([Instance((PROMPT, {"num_beams": 4}))])


def test_model_args(lm):
    made = type(lm)(threads=1, slots=1, batch_size=1, max_batch_size=None, device="cuda:0")
    assert made.model.slots == 1 and made.tokenizer_name
    with pytest.raises(TypeError):
        type(lm)(no_such_option=1)
    text = made.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert "Hi" in text

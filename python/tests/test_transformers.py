"""transformers' Mamba models on adder.compat equal their own PyTorch code, without a GPU.

tools/test_python_peers.sh installs transformers and runs this; elsewhere it is skipped. Tolerance: two
layers of float32 sums of at most 128 terms in another order, so some 128 * 2^-24 = 8e-6 of the largest
value for each sum, a handful in a row: 5e-5. Greedy tokens and the shape of everything are equal.
"""

import contextlib
import subprocess
import sys
import types

import pytest

import adder.compat

try:
    import torch
except ImportError:
    torch = None

TOLERANCE = 5e-5
SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "conv_kernel": 4}
HEADS = {"num_heads": 8, "head_dim": 8, "state_size": 16, "chunk_size": 16}
MODELS = {
    "Mamba": {"state_size": 8},
    "Mamba2": {**HEADS, "n_groups": 1},
    "FalconMamba": {"state_size": 8},
}


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch")
    module = pytest.importorskip("transformers")
    complete_torch()
    return module


def complete_torch():
    """transformers 4.48 asks PyTorch 1.13 for two functions of PyTorch 2 that only matter to a compiler."""
    if not hasattr(torch, "_dynamo"):
        torch._dynamo = types.SimpleNamespace(
            mark_static_address=lambda tensor: None, is_compiling=lambda: False
        )


def make_model(transformers, name, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **{**MODELS[name], **options})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and D away from 0 and 1, and logits apart
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@contextlib.contextmanager
def fast_path():
    """The shims, and a count of the mixers that ran on them."""
    from transformers.models.falcon_mamba.modeling_falcon_mamba import FalconMambaMixer
    from transformers.models.mamba.modeling_mamba import MambaMixer
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    calls = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(adder.compat.install())
        for mixer in (FalconMambaMixer, MambaMixer, Mamba2Mixer):
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(mixer, "cuda_kernels_forward", _count(mixer.cuda_kernels_forward, calls))
        yield calls


def _count(method, calls):
    def counted(*args, **kwargs):
        calls.append(method)
        return method(*args, **kwargs)

    return counted


def assert_close(got, expected):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()  # false for NaN


def random_ids(*shape):
    return torch.randint(0, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(1))


def states_of(cache):
    return [torch.stack(list(each)) for each in (cache.conv_states, cache.ssm_states)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", [1, 3, 37])
def test_prefill_and_its_states(transformers, name, length):
    model, ids = make_model(transformers, name), random_ids(2, length)
    with torch.no_grad():
        expected = model(ids, use_cache=True)
        with fast_path() as calls:
            got = model(ids, use_cache=True)
    assert len(calls) == SIZES["num_hidden_layers"]
    assert_close(got.logits, expected.logits)
    for state, its_reference in zip(states_of(got.cache_params), states_of(expected.cache_params)):
        assert_close(state, its_reference)


@pytest.mark.parametrize("name", MODELS)
def test_padding_on_the_left(transformers, name):
    model, ids = make_model(transformers, name), random_ids(2, 21)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits
        with fast_path():
            got = model(ids, attention_mask=mask).logits
    assert_close(got, expected)


def decode(model, ids, prompt):
    """Logits of every position after the prompt, fed one id at a time."""
    output = model(ids[:, :prompt], use_cache=True)
    logits = []
    for t in range(prompt, ids.shape[1]):
        output = model(
            ids[:, t : t + 1], use_cache=True, cache_params=output.cache_params, cache_position=torch.tensor([t])
        )
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("name", MODELS)
def test_decode(transformers, name):
    model, ids = make_model(transformers, name), random_ids(2, 24)
    with torch.no_grad():
        expected = decode(model, ids, 9)
        with fast_path() as calls:
            got = decode(model, ids, 9)
            whole = model(ids).logits[:, 9:]
    assert len(calls) == SIZES["num_hidden_layers"] * 17
    assert_close(got, expected)
    assert_close(got, whole)


def test_decode_continues_prefill_with_groups(transformers):
    """Not compared with transformers 4.48's prefill, which gives the heads of several groups the wrong B and C."""
    model, ids = make_model(transformers, "Mamba2", n_groups=2), random_ids(2, 24)
    with torch.no_grad(), fast_path():
        assert_close(decode(model, ids, 9), model(ids).logits[:, 9:])


@pytest.mark.parametrize("name", MODELS)
def test_generate_gives_the_same_tokens(transformers, name):
    model, ids = make_model(transformers, name), random_ids(2, 7)
    # synced_gpus: else transformers asks for torch.distributed.fsdp, which Debian's PyTorch cannot import.
    options = {"min_new_tokens": 24, "max_new_tokens": 24, "do_sample": False, "synced_gpus": False}
    expected = model.generate(ids, **options)
    with fast_path() as calls:
        got = model.generate(ids, **options)
    assert calls
    assert torch.equal(got, expected)
    assert got.shape == (2, 31)


@pytest.mark.parametrize("name", MODELS)
def test_training_keeps_to_the_code_of_transformers(transformers, name):
    model, ids = make_model(transformers, name).train(), random_ids(2, 8)

    def gradients():
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    with fast_path() as calls:
        got = gradients()
        with torch.no_grad():
            model(ids, use_cache=False)
    assert not calls
    assert all(torch.equal(each, its_reference) for each, its_reference in zip(got, expected))


def test_an_activation_other_than_silu_keeps_to_the_code_of_transformers(transformers):
    model, ids = make_model(transformers, "Mamba", hidden_act="gelu"), random_ids(1, 8)
    with torch.no_grad():
        expected = model(ids).logits
        with fast_path() as calls:
            got = model(ids).logits
    assert not calls
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(transformers, name):
    """Each side against float32: Adder's rounding is not allowed to cost more than PyTorch's, by half."""
    model, ids = make_model(transformers, name), random_ids(2, 37)
    with torch.no_grad():
        exact = model(ids).logits
        model = model.to(torch.bfloat16)
        reference_error = (model(ids).logits.float() - exact).abs().max()
        with fast_path():
            error = (model(ids).logits.float() - exact).abs().max()
    assert error <= 1.5 * reference_error


def test_uninstall_restores_transformers(transformers):
    from transformers.models.mamba import modeling_mamba
    from transformers.utils import import_utils

    before = dict(vars(modeling_mamba)), modeling_mamba.MambaMixer.forward, dict(vars(import_utils))
    with adder.compat.install():
        assert import_utils.is_mamba_ssm_available() and import_utils.is_causal_conv1d_available()
        assert import_utils.is_mamba_2_ssm_available()
        assert modeling_mamba.selective_scan_fn is not None
    assert (dict(vars(modeling_mamba)), modeling_mamba.MambaMixer.forward, dict(vars(import_utils))) == before


IMPORTED_AFTERWARDS = """
import sys
sys.path[:0] = {path!r}
import test_transformers as tests
import adder.compat
import torch, transformers
tests.complete_torch()
with adder.compat.install():
    got = []
    for name in tests.MODELS:
        model, ids = tests.make_model(transformers, name), tests.random_ids(2, 37)
        with torch.no_grad():
            got.append(model(ids).logits)
        file = sys.modules[type(model).__module__]
        assert file.selective_state_update is not None
    tests.check_inner_function(file.mamba_inner_fn)
for name, its_logits in zip(tests.MODELS, got):
    model = tests.make_model(transformers, name)
    assert sys.modules[type(model).__module__].selective_state_update is None
    with torch.no_grad():
        tests.assert_close(its_logits, model(ids).logits)
"""


def check_inner_function(theirs):
    """FalconMamba's own mamba_inner_fn, an autograd function over selective_scan_cuda and causal_conv1d_cuda."""
    from adder import ops

    assert theirs.__module__.startswith("transformers.")
    torch.manual_seed(0)
    dim, dt_rank, dstate = 16, 4, 8
    xz = torch.randn(2, 2 * dim, 37, requires_grad=True)
    weights = torch.randn(dim, 1, 4), torch.randn(dim), torch.randn(dt_rank + 2 * dstate, dim) / 4
    weights += torch.randn(dim, dt_rank), torch.randn(24, dim) / 4, None, -torch.rand(dim, dstate)
    options = {"D": torch.randn(dim), "delta_bias": torch.rand(dim), "b_rms_weight": torch.rand(dstate)}
    got = theirs(xz, *weights, **options)
    with torch.no_grad():
        assert_close(got.detach(), ops.mamba_inner_fn(xz, *weights, **options))
    with pytest.raises(NotImplementedError, match="selective_scan_cuda.bwd: Adder has no backward pass"):
        got.sum().backward()


def test_transformers_imported_after_the_shims(transformers):
    code = IMPORTED_AFTERWARDS.format(path=sys.path)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr

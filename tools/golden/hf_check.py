"""Cross-check against Hugging Face transformers (float32, PyTorch path).

Two ways. Whole: one forward pass over prompt and greedy ids, conv and SSM states read from the cache. Step:
one token at a time; for Mamba-2 with groups, where the whole-sequence path of transformers mixes up the groups
but the cached path does not. transformers norms the gated output over the whole width, which is wrong for more
than one group; the step check replaces that norm by a per-group one and says so.
"""

import types

import numpy as np
import torch

if not hasattr(torch, "_dynamo"):  # torch 1.x: transformers only marks cache tensors with it
    torch._dynamo = types.SimpleNamespace(mark_static_address=lambda *a, **k: None)

import transformers  # noqa: E402
from transformers.models.mamba2.modeling_mamba2 import Mamba2Cache  # noqa: E402

from golden.files import canonical_name, read_weights  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

_MODELS = {"mamba": "Mamba", "mamba2": "Mamba2", "falcon_mamba": "FalconMamba"}


class _GroupedGatedNorm(torch.nn.Module):
    def __init__(self, norm, groups):
        super().__init__()
        self.weight, self.eps, self.groups = norm.weight, norm.variance_epsilon, groups

    def forward(self, x, gate):
        v = x * torch.nn.functional.silu(gate)
        g = v.reshape(*v.shape[:-1], self.groups, -1)
        g = g * torch.rsqrt(g.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * g.reshape(v.shape)


def _load(case, folder):
    family = _MODELS[case.hf]
    model_class = getattr(transformers, family + "ForCausalLM")
    if case.dialect == "hf":  # transformers reads our files by itself
        return model_class.from_pretrained(folder, torch_dtype=torch.float32).eval()
    config = getattr(transformers, family + "Config")(**case.hf_config)
    model = model_class(config).eval()
    weights = read_weights(folder)
    weights.setdefault("lm_head.weight", weights["embedding.weight"])
    state = {n: torch.tensor(weights[canonical_name(n)], dtype=torch.float32) for n in model.state_dict()}
    model.load_state_dict(state)
    assert len(state) == len(weights), sorted(weights)
    return model


def _whole(model, ids, prompt_length):
    rows = model(torch.tensor([ids]), use_cache=False).logits[0]
    cache = model(torch.tensor([ids[:prompt_length]]), use_cache=True).cache_params
    return rows, cache


def _step(model, ids, prompt_length):
    if model.config.n_groups > 1:
        for block in model.backbone.layers:
            block.mixer.norm = _GroupedGatedNorm(block.mixer.norm, model.config.n_groups)
    cache = Mamba2Cache(model.config, 1, dtype=torch.float32)
    rows, kept = [], None
    for t, token in enumerate(ids):
        # Positions start at 1: position 0 would select the whole-sequence path.
        out = model(torch.tensor([[token]]), cache_params=cache, use_cache=True,
                    cache_position=torch.tensor([t + 1]))
        rows.append(out.logits[0, -1])
        if t + 1 == prompt_length:
            kept = types.SimpleNamespace(conv_states=[c.clone() for c in cache.conv_states],
                                         ssm_states=[s.clone() for s in cache.ssm_states])
    return torch.stack(rows), kept


@torch.no_grad()
def compare(case, folder, result):
    """Run transformers on the written files. `result` is oracle.greedy(...) plus "all_rows" and "prompt"."""
    model = _load(case, folder)
    prompt, ids = result["prompt"], result["prompt"] + result["ids"]
    rows, cache = (_step if case.hf_step else _whole)(model, ids, len(prompt))
    rows = rows.to(torch.float64).numpy()
    greedy = rows[len(prompt) - 1 : -1].argmax(axis=1).tolist()
    conv = cache.conv_states[0][0].to(torch.float64).numpy()[:, 1:]  # transformers keeps d_conv columns
    ssm = cache.ssm_states[0][0].to(torch.float64).numpy()
    return {
        "logits": float(np.abs(rows - result["all_rows"]).max()),
        "conv_state": float(np.abs(conv - result["conv_state"]).max()),
        "ssm_state": float(np.abs(ssm - result["ssm_state"]).max()),
        "greedy_equal": greedy == result["ids"],
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}",
    }

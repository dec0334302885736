"""The table of golden cases: one entry per folder in tests/golden."""

from dataclasses import dataclass, field

from golden.oracle import Shape


@dataclass(frozen=True)
class Case:
    name: str
    shape: Shape
    seed: int  # of the weights; found with make_golden.py --search
    dialect: str  # see files.stored_name
    container: str  # see files.write_weights
    config: dict
    note: str
    config_file: str = "config.json"
    dtype: str = "f32"
    ssm_in_f32: bool = False  # A_log and D stay float32 in a 16-bit file
    tied: bool = True
    store_head: bool = False  # a tied head may be stored all the same
    bin_layout: str = "plain"  # see files.layout_for_bin
    real_vocab: int = 0  # ids below it may appear; 0: all rows
    weights: dict = field(default_factory=dict)  # extra arguments of weights.make
    hf: str = ""  # transformers class family for the cross-check: mamba, mamba2, falcon_mamba
    hf_step: bool = False  # run transformers token by token with a per-group norm (see hf_check)
    hf_config: dict = field(default_factory=dict)  # for dialects that transformers cannot load itself

    @property
    def vocab(self):
        return self.real_vocab or self.shape.vocab


def _state_spaces(s, vocab_size, pad, ssm_cfg, **extra):
    return {
        "d_model": s.d_model, "n_layer": s.n_layer, "vocab_size": vocab_size, "ssm_cfg": ssm_cfg,
        "rms_norm": True, "residual_in_fp32": True, "fused_add_norm": True,
        "pad_vocab_size_multiple": pad, **extra,
    }


_HF_TAIL = {
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "hidden_act": "silu", "initializer_range": 0.1,
    "rescale_prenorm_residual": False, "residual_in_fp32": True, "time_step_floor": 0.0001,
    "time_step_max": 0.1, "time_step_min": 0.001, "use_cache": True, "use_conv_bias": True,
}
_TORCH_DTYPE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def _hf1(s, dtype, tied, model_type="mamba", **extra):
    cls = {"mamba": "MambaForCausalLM", "falcon_mamba": "FalconMambaForCausalLM"}[model_type]
    return {
        "architectures": [cls], "model_type": model_type, "hidden_size": s.d_model,
        "intermediate_size": s.d_inner, "expand": s.d_inner // s.d_model, "num_hidden_layers": s.n_layer,
        "state_size": s.d_state, "conv_kernel": s.d_conv, "time_step_rank": s.dt_rank,
        "layer_norm_epsilon": s.eps, "vocab_size": s.vocab, "tie_word_embeddings": tied, "use_bias": False,
        "torch_dtype": _TORCH_DTYPE[dtype], **_HF_TAIL, "time_step_init_scheme": "random",
        "time_step_scale": 1.0, **extra,
    }


def _hf2(s, dtype, tied, **extra):
    return {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": s.d_model,
        "expand": s.d_inner // s.d_model, "num_hidden_layers": s.n_layer, "state_size": s.d_state,
        "conv_kernel": s.d_conv, "num_heads": s.n_heads, "head_dim": s.headdim, "n_groups": s.n_groups,
        "layer_norm_epsilon": s.eps, "vocab_size": s.vocab, "tie_word_embeddings": tied, "use_bias": False,
        "rms_norm": True, "norm_before_gate": True, "chunk_size": 16, "time_step_limit": list(s.dt_limit),
        "torch_dtype": _TORCH_DTYPE[dtype], **_HF_TAIL, **extra,
    }


_M1 = Shape(family=1, d_model=33, n_layer=2, d_inner=66, d_state=16, d_conv=4, dt_rank=3, vocab=104)
_M1_BF16 = Shape(family=1, d_model=37, n_layer=3, d_inner=74, d_state=5, d_conv=3, dt_rank=5, vocab=93)
_M1_F16 = Shape(family=1, d_model=32, n_layer=2, d_inner=64, d_state=8, d_conv=4, dt_rank=2, vocab=96, eps=1e-3)
_OLD = Shape(family=1, d_model=24, n_layer=2, d_inner=48, d_state=8, d_conv=4, dt_rank=4, vocab=96)
_FALCON = Shape(family=1, d_model=24, n_layer=2, d_inner=48, d_state=8, d_conv=4, dt_rank=6, vocab=96,
                mixer_rms_eps=1e-6)
_M2 = Shape(family=2, d_model=32, n_layer=2, d_inner=64, d_state=16, d_conv=4, n_heads=4, vocab=112)
_M2_G4 = Shape(family=2, d_model=16, n_layer=2, d_inner=128, d_state=8, d_conv=4, n_heads=16, n_groups=4,
               vocab=96, dt_limit=(0.001, 0.1))
_CODESTRAL = Shape(family=2, d_model=64, n_layer=2, d_inner=128, d_state=128, d_conv=4, n_heads=2, n_groups=2,
                   vocab=96)
_M2_PLAIN = Shape(family=2, d_model=32, n_layer=2, d_inner=64, d_state=8, d_conv=4, n_heads=4, n_groups=2,
                  vocab=96, gated_norm=False, d_has_hdim=True)

_OLD_CONFIG = {
    "architectures": ["MambaForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_mamba.MambaConfig",
                 "AutoModelForCausalLM": "modeling_mamba.MambaForCausalLM"},
    "bias": False, "conv_bias": True, "d_conv": 4, "d_inner": 48, "d_model": 24, "d_state": 8, "dt_rank": 4,
    "expand": 2, "initializer_range": 0.02, "model_type": "mamba", "n_layer": 2, "pad_vocab_size_multiple": 8,
    "torch_dtype": "float32", "transformers_version": "4.35.2", "vocab_size": 96,
}

CASES = [
    Case(
        name="mamba1_state_spaces_bin", shape=_M1, seed=111, dialect="state_spaces", container="bin",
        config=_state_spaces(_M1, 101, 8, {}), real_vocab=101, store_head=True, bin_layout="state_dict",
        hf="mamba", hf_config=_hf1(_M1, "f32", True),
        note="Dialect 1. dt_rank auto = ceil(33/16) = 3. vocab_size 101, 104 rows. The tied head is stored and "
             "shares its storage with the embedding; the pickle carries _metadata as state_dict() does.",
    ),
    Case(
        name="mamba1_hf", shape=_M1, seed=111, dialect="hf", container="safetensors",
        config=_hf1(_M1, "f32", True), real_vocab=101, hf="mamba",
        note="Dialect 2. Weights and results of mamba1_state_spaces_bin; no lm_head.",
    ),
    Case(
        name="mamba1_hf_sharded_bf16", shape=_M1_BF16, seed=56, dialect="hf", container="safetensors_sharded",
        config=_hf1(_M1_BF16, "bf16", False), dtype="bf16", tied=False, hf="mamba",
        note="Every size odd or not a multiple of 8 (d_inner 74, dt_rank 5, d_state 5, d_conv 3, vocab 93), so "
             "tensors start at 2-byte offsets. All tensors bfloat16. Untied.",
    ),
    Case(
        name="mamba1_hf_f16", shape=_M1_F16, seed=90, dialect="hf", container="safetensors",
        config=_hf1(_M1_F16, "f16", True, use_bias=True), dtype="f16", ssm_in_f32=True,
        weights={"biases": True}, hf="mamba",
        note="float16, but A_log and D are float32 (dtype is per tensor). in_proj.bias and out_proj.bias exist. "
             "layer_norm_epsilon is 1e-3, far enough from the usual 1e-5 to show if it is ignored.",
    ),
    Case(
        name="mamba1_old_port_bin", shape=_OLD, seed=24, dialect="old_port", container="bin",
        config=_OLD_CONFIG, store_head=True, bin_layout="parameters", hf="mamba",
        hf_config=_hf1(_OLD, "f32", True),
        note="Dialect 4 keys, tensor names ASSUMED to be those of dialect 1. lm_head is a second copy, equal to "
             "the embedding. Values are nn.Parameter (_rebuild_parameter in the pickle).",
    ),
    Case(
        name="mamba1_old_port_model_prefix_bin", shape=_OLD, seed=24, dialect="old_port_model", container="bin",
        config=_OLD_CONFIG, store_head=True, bin_layout="state_dict", hf="mamba", hf_config=_hf1(_OLD, "f32", True),
        note="Weights and results of mamba1_old_port_bin under the names that the port's model code gives: "
             "model.embedding, model.layers.N.in_proj (no mixer level), model.norm_f, lm_head.",
    ),
    Case(
        name="falcon_mamba", shape=_FALCON, seed=38, dialect="hf", container="safetensors",
        config=_hf1(_FALCON, "f32", False, "falcon_mamba", expand=16, mixer_rms_eps=1e-6, use_mambapy=False),
        tied=False, weights={"x_proj_gain": 0.008}, hf="falcon_mamba",
        note="Weightless RMS norm of dt, B and C with eps 1e-6; x_proj is small, so that a wrong eps shows. "
             "expand 16 is wrong on purpose: intermediate_size 48 rules. Untied.",
    ),
    Case(
        name="mamba2_state_spaces_bin", shape=_M2, seed=147, dialect="state_spaces", container="bin",
        config=_state_spaces(_M2, 101, 16, {"layer": "Mamba2", "d_state": 16, "headdim": 16, "ngroups": 1},
                             d_intermediate=0, attn_layer_idx=[], attn_cfg={}, tie_embeddings=True),
        real_vocab=101, bin_layout="state_dict", hf="mamba2", hf_config=_hf2(_M2, "f32", True),
        note="Dialect 1, Mamba-2. vocab_size 101, 112 rows. Tied, lm_head absent.",
    ),
    Case(
        name="mamba2_hf", shape=_M2, seed=147, dialect="hf", container="safetensors",
        config=_hf2(_M2, "f32", True), real_vocab=101, hf="mamba2",
        note="Dialect 3. Weights and results of mamba2_state_spaces_bin. Bare Infinity in time_step_limit. "
             "norm_before_gate true must be ignored.",
    ),
    Case(
        name="mamba2_hf_groups4", shape=_M2_G4, seed=26, dialect="hf", container="bin_sharded",
        config=_hf2(_M2_G4, "f32", False), tied=False, weights={"dt_range": (3e-4, 0.05)},
        hf="mamba2", hf_step=True,
        note="16 heads of 8, 4 groups, gated norm per group of 32, dt clamped to (0.001, 0.1) after softplus "
             "(both ends are reached). expand 8. Two .bin shards and an index. Untied.",
    ),
    Case(
        name="codestral", shape=_CODESTRAL, seed=166, dialect="codestral", container="consolidated",
        config={"dim": 64, "n_layers": 2, "vocab_size": 96, "n_groups": 2, "rms_norm": True,
                "residual_in_fp32": True, "fused_add_norm": True, "pad_vocab_size_multiple": 1,
                "tie_embeddings": False, "model_type": "mamba"},
        config_file="params.json", dtype="bf16", tied=False, hf="mamba2", hf_step=True,
        hf_config=_hf2(_CODESTRAL, "bf16", False),
        note="Dialect 5: params.json names neither d_state (128) nor headdim (64); model_type says mamba. "
             "All tensors bfloat16. Untied. dt_limit (0, inf).",
    ),
    Case(
        name="mamba2_state_spaces_D_has_hdim_no_norm", shape=_M2_PLAIN, seed=107, dialect="state_spaces",
        container="bin",
        config=_state_spaces(_M2_PLAIN, 96, 16,
                             {"layer": "Mamba2", "d_state": 8, "headdim": 16, "ngroups": 2, "rmsnorm": False,
                              "D_has_hdim": True},
                             d_intermediate=0, attn_layer_idx=[], attn_cfg={}, tie_embeddings=True),
        bin_layout="views",
        note="rmsnorm false: y * silu(z) without a norm, no mixer.norm.weight. D has d_inner values. 2 groups. "
             "In the .bin, in_proj is stored transposed (strides) and the norms are slices of one storage (offsets).",
    ),
]

assert len({c.name for c in CASES}) == len(CASES)
assert all(c.shape.d_inner % c.shape.d_model == 0 for c in CASES)

#!/usr/bin/env python3
"""Writes golden checkpoints (tests/golden) again as GGUF, with ggml's own Python package.

The tensors and keys are those that llama.cpp's converter would write, so the files are an independent
statement of what the reader must understand. The expected numbers stay those of the source checkpoint.
Needs NumPy and gguf (pip install gguf).

    tools/make_gguf_golden.py
"""
import json
import pathlib
import shutil
import struct

import gguf
import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
# source folder: target folder, weights, one key of every type in the metadata
CASES = {"mamba1_hf": ("gguf_mamba1", "model.safetensors", True),
         "falcon_mamba": ("gguf_falcon_mamba", "model.safetensors", False),
         "mamba2_hf": ("gguf_mamba2", "model.safetensors", False),
         "codestral": ("gguf_mamba2_bf16", "consolidated.safetensors", False)}
LAYER = {"norm.weight": "attn_norm.weight", "mixer.in_proj.weight": "ssm_in.weight",
         "mixer.conv1d.weight": "ssm_conv1d.weight", "mixer.conv1d.bias": "ssm_conv1d.bias",
         "mixer.x_proj.weight": "ssm_x.weight", "mixer.dt_proj.weight": "ssm_dt.weight",
         "mixer.dt_proj.bias": "ssm_dt.bias", "mixer.dt_bias": "ssm_dt.bias", "mixer.A_log": "ssm_a",
         "mixer.D": "ssm_d", "mixer.norm.weight": "ssm_norm.weight", "mixer.out_proj.weight": "ssm_out.weight"}
TOP = {"embeddings.weight": "token_embd.weight", "embedding.weight": "token_embd.weight",
       "norm_f.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def read_safetensors(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[entry["dtype"]]
        array = np.frombuffer(data[begin:end], kind).reshape(entry["shape"])
        yield name, array, entry["dtype"]


def to_f32(array, dtype):
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def gguf_name(name):
    name = name.removeprefix("model.").removeprefix("backbone.")
    if name.startswith("layers."):
        _, layer, rest = name.split(".", 2)
        return f"blk.{layer}.{LAYER[rest]}"
    return TOP[name]


def every_type(writer):
    for suffix, add, value in (("u8", writer.add_uint8, 200), ("i8", writer.add_int8, -3),
                               ("u16", writer.add_uint16, 60000), ("i16", writer.add_int16, -300),
                               ("u32", writer.add_uint32, 4000000000), ("i32", writer.add_int32, -70000),
                               ("u64", writer.add_uint64, 1 << 40), ("i64", writer.add_int64, -(1 << 40)),
                               ("f32", writer.add_float32, 0.1), ("f64", writer.add_float64, 0.1),
                               ("bool", writer.add_bool, True), ("string", writer.add_string, "na\u00efve"),
                               ("floats", writer.add_array, [0.5, -1.5]), ("ints", writer.add_array, [1, -2, 3]),
                               ("strings", writer.add_array, ["a", "", "\u2581b"])):
        add("test." + suffix, value)


def convert(source, target, weights, with_types):
    tensors = {gguf_name(name): (array, dtype) for name, array, dtype in read_safetensors(source / weights)}
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blk."))
    vocab, d_model = tensors["token_embd.weight"][0].shape
    _, d_inner = tensors["blk.0.ssm_out.weight"][0].shape
    mamba2 = "blk.0.ssm_norm.weight" in tensors
    conv = tensors["blk.0.ssm_conv1d.weight"][0]
    config = json.loads((source / ("params.json" if weights.startswith("consolidated") else "config.json")).read_text())

    target.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(target / "model.gguf", "mamba2" if mamba2 else "mamba")
    writer.add_context_length(2 ** 20)
    writer.add_embedding_length(d_model)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(layers)
    writer.add_ssm_conv_kernel(conv.shape[-1])
    writer.add_ssm_inner_size(d_inner)
    a = tensors["blk.0.ssm_a"][0]
    groups = config.get("n_groups", 1)
    writer.add_ssm_state_size((conv.shape[0] - d_inner) // (2 * groups) if mamba2 else a.shape[1])
    writer.add_ssm_time_step_rank(a.shape[0] if mamba2 else tensors["blk.0.ssm_dt.weight"][0].shape[1])
    if mamba2:
        writer.add_ssm_group_count(groups)
    else:
        writer.add_ssm_dt_b_c_rms(config["model_type"] == "falcon_mamba")
    writer.add_layer_norm_rms_eps(config.get("layer_norm_epsilon", 1e-5))
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(vocab)
    if with_types:
        every_type(writer)

    for name, (array, dtype) in tensors.items():
        if name.endswith(("ssm_a", "ssm_d", "ssm_conv1d.weight")) or array.ndim == 1:
            array, dtype = to_f32(array, dtype), "F32"
        if name.endswith("ssm_a"):
            array = -np.exp(array.astype(np.float64)).astype(np.float32)
        if name.endswith("ssm_conv1d.weight"):
            array = array.squeeze(1)
        if mamba2 and name.endswith(("ssm_a", "ssm_d")):
            array = array.reshape(-1, 1)
        if name.endswith("ssm_norm.weight"):
            array = array.reshape(groups, d_inner // groups)
        if dtype == "BF16":
            writer.add_tensor(name, array.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shutil.copy(source / "expected.json", target / "expected.json")


if __name__ == "__main__":
    for folder, (target_name, file_name, types) in CASES.items():
        convert(GOLDEN / folder, GOLDEN / target_name, file_name, types)

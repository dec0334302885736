"""Lets tests written for CUDA and Triton run where neither exists: for tools/run_peer_tests.py only."""

import functools
import importlib.machinery
import importlib.util
import sys
import types

import torch

_FACTORIES = (
    "arange as_tensor empty eye full full_like linspace empty_like ones ones_like rand rand_like randint "
    "randn randn_like randperm tensor zeros zeros_like"
).split()


def _on_cpu(device):
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.startswith("cuda") else device
    return device


def _map_device(function):
    @functools.wraps(function)
    def mapped(*args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        return function(*args, **kwargs)

    return mapped


def _map_to(function):
    mapped = _map_device(function)

    @functools.wraps(function)
    def to(self, *args, **kwargs):
        return mapped(self, *(_on_cpu(each) for each in args), **kwargs)

    return to


def map_cuda_to_cpu():
    """device="cuda" means the CPU from now on, for tensors, modules and what else the tests call."""
    for name in _FACTORIES:
        setattr(torch, name, _map_device(getattr(torch, name)))
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = _map_to(owner.to)
        owner.cuda = lambda self, *args, **kwargs: self
    for layer in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Embedding):
        layer.__init__ = _map_device(layer.__init__)
    torch.cuda.synchronize = lambda *args, **kwargs: None


def ignore_cuda_graphs(generation):
    """generation: mamba_ssm.utils.generation, whose decode(cg=True) replays a CUDA graph of the same calls."""
    decode = generation.decode

    @functools.wraps(decode)
    def decode_without(*args, **kwargs):
        return decode(*args, **{**kwargs, "cg": False})

    generation.decode = decode_without


class _Anything:
    """Stands for every name of Triton, and for what its decorators make of the kernels."""

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, key):
        return self

    def __iter__(self):  # over the configurations of an autotuned kernel
        yield self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Stub(types.ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


def stub_triton():
    """mamba_ssm's files keep their reference functions beside Triton kernels, which only need to be defined."""
    if importlib.util.find_spec("triton") is not None:
        return
    for name in ("triton", "triton.language"):
        stub = _Stub(name)
        stub.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        stub.__path__ = []
        sys.modules[name] = stub
    sys.modules["triton"].language = sys.modules["triton.language"]

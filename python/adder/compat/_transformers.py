"""transformers' Mamba models ask for CUDA twice: before they import the kernels and before they use them."""

import functools
import sys

from adder import ops

_IMPORT_UTILS = "transformers.utils.import_utils"
_AVAILABLE = ("is_mamba_ssm_available", "is_mamba_2_ssm_available", "is_causal_conv1d_available")
_MIXERS = {
    "transformers.models.mamba.modeling_mamba": "MambaMixer",
    "transformers.models.mamba2.modeling_mamba2": "Mamba2Mixer",
    "transformers.models.falcon_mamba.modeling_falcon_mamba": "FalconMambaMixer",
}
# Operations of adder.ops that the mixers' fast path finds among their module's globals.
_KERNELS = (
    "selective_scan_fn",
    "mamba_inner_fn",
    "selective_state_update",
    "mamba_chunk_scan_combined",
    "mamba_split_conv1d_scan_combined",
    "causal_conv1d_fn",
    "causal_conv1d_update",
)


class Patches:
    """Changes to transformers' modules, and how to take them back."""

    def __init__(self):
        self._undo = []
        self._available = {}  # transformers' own functions of _AVAILABLE

    def wants(self, name):
        return name == _IMPORT_UTILS or name in _MIXERS

    def patch_when_loaded(self, spec):
        """spec, whose module is patched as soon as it has been executed."""
        exec_module = spec.loader.exec_module

        def exec_and_patch(module):
            exec_module(module)
            self._patch(module)

        spec.loader.exec_module = exec_and_patch
        return spec

    def apply_to_loaded(self):
        for name in (_IMPORT_UTILS, *_MIXERS):
            if name in sys.modules:
                self._patch(sys.modules[name])

    def undo(self):
        while self._undo:
            target, name, value = self._undo.pop()
            setattr(target, name, value)

    def _set(self, target, name, value):
        self._undo.append((target, name, getattr(target, name)))
        setattr(target, name, value)

    def _patch(self, module):
        if module.__name__ == _IMPORT_UTILS:
            for name in _AVAILABLE:
                if hasattr(module, name):
                    self._available[name] = getattr(module, name)
                    self._set(module, name, _yes)
            return
        for name, function in self._available.items():
            if module.__dict__.get(name) is _yes:
                self._undo.append((module, name, function))
        # Imported with the shims in place: afterwards, its kernels must be None again.
        ours = [name for name in _KERNELS if module.__dict__.get(name) is getattr(ops, name)]
        self._undo += [(module, name, None) for name in ours]
        if ours and "is_fast_path_available" in module.__dict__:
            self._undo.append((module, "is_fast_path_available", False))
        self.set_kernels(module)
        mixer = getattr(module, _MIXERS[module.__name__])
        self._set(mixer, "forward", _make_forward(self, module, mixer.forward))

    def set_kernels(self, module):
        """Fills the globals that are None because transformers found no CUDA when it was imported.

        Newer versions set them in the mixers' __init__, so this is repeated before each use; 4.57 keeps
        those of causal_conv1d as a pair.
        """
        if module.__dict__.get("_causal_conv1d_cache", module) in (None, (None, None)):
            self._set(module, "_causal_conv1d_cache", (ops.causal_conv1d_update, ops.causal_conv1d_fn))
        for name in _KERNELS:
            if module.__dict__.get(name, module) is None:
                self._set(module, name, getattr(ops, name))
        if module.__dict__.get("is_fast_path_available") is False:
            self._set(module, "is_fast_path_available", True)


def _yes():
    return True


def _make_forward(patches, module, forward):
    """The mixer's forward, which takes the fast path on the CPU where Adder's operations can follow."""

    @functools.wraps(forward)
    def forward_on_cpu(self, hidden_states, *args, **kwargs):
        if (
            hidden_states.device.type != "cpu"
            or self.activation not in ("silu", "swish")
            or self.training  # FalconMamba's fused function normalises dt elsewhere than its models do
            or _wants_gradient(self, hidden_states)
        ):
            return forward(self, hidden_states, *args, **kwargs)
        patches.set_kernels(module)
        return self.cuda_kernels_forward(hidden_states, *args, **kwargs)

    return forward_on_cpu


def _wants_gradient(mixer, hidden_states):
    import torch

    if not torch.is_grad_enabled():
        return False
    return hidden_states.requires_grad or any(each.requires_grad for each in mixer.parameters())

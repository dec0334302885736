"""Lets unchanged model code run on the CPU: Adder's operations under the names of mamba_ssm and causal_conv1d.

>>> import adder.compat
>>> adder.compat.install()
>>> from mamba_ssm.ops.selective_scan_interface import selective_scan_fn    # adder.ops.selective_scan_fn

``install()`` may also be used as a context manager, and ``uninstall()`` puts back what was there.

* Where mamba_ssm or causal_conv1d is not installed, a package of that name with the operations, a
  ``__spec__``, a ``__version__`` and metadata stands in for it.
* Where it is installed, only the modules with operations are replaced: its Python code, such as
  ``mamba_ssm.Mamba`` and ``Mamba2``, is imported as it is and runs on the CPU. Names that the
  replaced modules have and Adder has not (``selective_scan_ref``) still come from the original.
* ``selective_scan_cuda``, ``causal_conv1d_cuda`` and VMamba's ``selective_scan_cuda_core`` and
  ``selective_scan_cuda_oflex`` are replaced in either case (forward only).
* transformers' Mamba, Mamba2 and FalconMamba take their fast path on the CPU.

Call it before the model code is imported: a module keeps the functions that it has already taken
with ``from ... import``. Only transformers' models are also changed after the fact. PyTorch is
imported by the first operation that needs it, not by ``install()``.
"""

import importlib
import sys
import threading

from adder.compat._finder import Finder
from adder.compat._shims import ROOTS, SHIMS
from adder.compat._transformers import Patches

__all__ = ["install", "installed", "uninstall"]

_lock = threading.RLock()
_active = None


class Installation:
    """What install() returns; leaving it as a context manager uninstalls."""

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        uninstall()


class _Active:
    """The finder in sys.meta_path, and all that has to be put back."""

    def __init__(self, transformers):
        self.depth = 1
        self.saved = _take_modules()
        self.patches = Patches()
        self.finder = Finder(self.patches if transformers else None)
        sys.meta_path.insert(0, self.finder)
        try:
            for name in SHIMS:
                # Modules of an installed package wait for their import, which may need PyTorch.
                if self.finder.stands_alone(name):
                    importlib.import_module(name)
            if transformers:
                self.patches.apply_to_loaded()
        except BaseException:
            self.undo()
            raise

    def undo(self):
        self.patches.undo()
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        _take_modules()
        sys.modules.update(self.saved)


def _take_modules():
    """Removes the modules of the packages that are replaced from sys.modules, and returns them."""
    names = [name for name in sys.modules if name.partition(".")[0] in ROOTS]
    return {name: sys.modules.pop(name) for name in names}


def install(*, transformers=True):
    """Puts the shims in place; calls nest, and each needs its uninstall().

    transformers: also let transformers' Mamba, Mamba2 and FalconMamba models run their fast path on
    the CPU. In training mode, where a gradient is wanted, and with an activation other than SiLU they
    keep to their own code.
    Returns a context manager that calls uninstall().
    """
    global _active
    with _lock:
        if _active is None:
            _active = _Active(transformers)
        else:
            _active.depth += 1
    return Installation()


def uninstall():
    """Takes the shims away and puts back the modules that were there; RuntimeError without install()."""
    global _active
    with _lock:
        if _active is None:
            raise RuntimeError("adder.compat.uninstall(): expected a call of install() before, got none")
        _active.depth -= 1
        if _active.depth == 0:
            _active.undo()
            _active = None


def installed():
    """True between install() and uninstall()."""
    return _active is not None

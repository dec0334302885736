"""The import hook: makes the shims, finds the originals beside them, and tells importlib.metadata."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import types

from adder.compat._shims import MODULES_OF_MAMBA, SHIMS, VERSIONS


class ShimModule(types.ModuleType):
    """A module whose names are looked up at first use: in Adder, then in the module it replaces."""

    def __getattr__(self, name):
        shim = SHIMS[self.__name__]
        if name in shim.names:
            value = getattr(importlib.import_module(shim.names[name]), name)
        elif name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        else:
            value = self._from_original(name)
        self.__dict__[name] = value
        return value

    def __dir__(self):
        return sorted({*self.__dict__, *SHIMS[self.__name__].names})

    def _from_original(self, name):
        loader = self.__spec__.loader
        if loader.original_spec is not None:
            return getattr(loader.original(), name)
        if self.__name__ == "mamba_ssm" and name in MODULES_OF_MAMBA:
            # ImportError, because `from mamba_ssm import Mamba` would hide the text of another.
            raise ImportError(
                f"mamba_ssm.{name}: adder.compat stands in for mamba_ssm's operations, not for its modules; "
                "install mamba-ssm itself (its Python files are enough) and adder.compat runs them"
            )
        raise AttributeError(
            f"module {self.__name__!r} is a shim of adder.compat and has no {name!r}; "
            f"it has {', '.join(sorted(SHIMS[self.__name__].names)) or 'only submodules'}"
        )


class ShimLoader(importlib.abc.Loader):
    def __init__(self, original_spec):
        self.original_spec = original_spec
        self._original = None

    def create_module(self, spec):
        return ShimModule(spec.name)

    def exec_module(self, module):
        name = module.__name__
        module.__doc__ = f"adder.compat's shim for {name}."
        module.__all__ = [each for each in SHIMS[name].names if not each.startswith("_")]
        if name in VERSIONS:
            module.__version__ = VERSIONS[name]

    def original(self):
        """The module that the shim replaces, executed under its own name but not in sys.modules."""
        if self._original is None:
            name = self.original_spec.name
            module = importlib.util.module_from_spec(self.original_spec)
            try:
                self.original_spec.loader.exec_module(module)
            except Exception as error:  # of which `from ... import` would hide an AttributeError
                raise ImportError(
                    f"adder.compat replaces {name} and takes other names from the original, "
                    f"which cannot be imported: {type(error).__name__}: {error}"
                ) from error
            self._original = module
        return self._original


class Finder(importlib.abc.MetaPathFinder):
    """First in sys.meta_path while the shims are installed."""

    def __init__(self, patches):
        self._patches = patches  # of transformers, or None
        self._originals = {name: self._find_original(name) for name in VERSIONS}

    def stands_alone(self, name):
        """True when no installed package has the module `name`: the shim is all there is."""
        root = name.partition(".")[0]
        if not (root in self._originals and self._originals[root]):
            return not name.startswith("mamba_ssm.ops.triton.mamba3.")
        return False

    def find_spec(self, name, path=None, target=None):
        if name in SHIMS:
            return self._find_shim(name, path)
        if self._patches is not None and self._patches.wants(name):
            spec = self._find_original(name, path)
            return spec and self._patches.patch_when_loaded(spec)
        return None

    def _find_shim(self, name, path):
        alone = self.stands_alone(name)
        if not alone and not SHIMS[name].replaces:
            return None  # the installed package itself
        original = None if alone else self._find_original(name, path)
        spec = importlib.machinery.ModuleSpec(
            name, ShimLoader(original), origin="adder.compat", is_package=SHIMS[name].package
        )
        return spec

    def _find_original(self, name, path=None):
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path)
            # A directory of that name without an __init__.py has a loader but no origin.
            if spec is not None and spec.origin is not None:
                return spec
        return None

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        """Metadata for the stand-ins: importlib.metadata.version("mamba_ssm") has an answer."""
        wanted = context.name and re.sub(r"[-_.]+", "_", context.name).lower()
        for package, version in VERSIONS.items():
            if self._originals[package] is None and wanted in (None, package):
                yield ShimDistribution(package, version)


class ShimDistribution(importlib.metadata.Distribution):
    def __init__(self, package, version):
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
            "Summary: stand-in by adder.compat\n",
            "top_level.txt": f"{package}\n",
        }

    def read_text(self, filename):
        return self._texts.get(filename)

    def locate_file(self, path):
        raise FileNotFoundError(f"{path}: adder.compat's stand-in has no files")

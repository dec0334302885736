"""adder.compat: what import finds while the shims are installed, and that nothing is left behind."""

import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import textwrap
import types

import pytest

import adder.compat
from adder.compat._finder import Finder
from adder.compat._shims import ROOTS, SHIMS, VERSIONS

# A package with the layout of mamba_ssm whose operations need something that is not there, as Triton.
FILES_OF_A_PACKAGE = {
    "__init__.py": "__version__ = '9.9'\nfrom mamba_ssm.ops.selective_scan_interface import selective_scan_fn\n",
    "modules/__init__.py": "",
    "modules/mamba_simple.py": """
        from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn
        from mamba_ssm.ops.triton.layernorm_gated import rms_norm_ref
        class Mamba:
            kernel = selective_scan_fn
        """,
    "ops/__init__.py": "",
    "ops/selective_scan_interface.py": "import a_package_that_nobody_has\ndef selective_scan_ref(): pass\n",
    "ops/triton/__init__.py": "",
    "ops/triton/layernorm_gated.py": "def rms_norm_ref(): return 'the original'\ndef rmsnorm_fn(): pass\n",
}


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = set(sys.modules)
    yield
    assert not adder.compat.installed()
    assert not [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] in ROOTS}


@pytest.fixture()
def installed_package(tmp_path, monkeypatch):
    for name, text in FILES_OF_A_PACKAGE.items():
        file = tmp_path / "mamba_ssm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)


def test_every_shim_is_importable_and_has_its_names():
    with adder.compat.install():
        for name, shim in SHIMS.items():
            if ".mamba3." in name:
                continue  # only beside an installed mamba_ssm
            module = importlib.import_module(name)
            assert module.__spec__.name == name
            for attribute, source in shim.names.items():
                if source == "adder.ops":
                    expected = getattr(importlib.import_module("adder.ops"), attribute)
                    assert getattr(module, attribute) is expected


def test_stands_in_for_missing_packages():
    with adder.compat.install():
        for package, version in VERSIONS.items():
            assert importlib.util.find_spec(package) is not None
            assert importlib.import_module(package).__version__ == version
            assert importlib.metadata.version(package) == version
            assert importlib.metadata.version(package.replace("_", "-")) == version
        import mamba_ssm.ops.triton.ssd_combined

        assert callable(mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined)
    for package in VERSIONS:
        assert importlib.util.find_spec(package) is None
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(package)


def test_what_a_stand_in_has_not_is_named():
    with adder.compat.install():
        with pytest.raises(ImportError, match=r"mamba_ssm\.Mamba2: .* install mamba-ssm itself"):
            from mamba_ssm import Mamba2  # noqa: F401
        import mamba_ssm.ops.selective_scan_interface as interface

        with pytest.raises(AttributeError, match="no 'selective_scan_ref'; it has mamba_inner_fn, selective_scan_fn"):
            interface.selective_scan_ref
        with pytest.raises(ImportError):
            import mamba_ssm.modules  # noqa: F401


def test_runs_the_python_code_of_an_installed_package(installed_package):
    with adder.compat.install():
        from mamba_ssm.modules.mamba_simple import Mamba, rms_norm_ref

        ops = importlib.import_module("adder.ops")
        mamba_ssm = importlib.import_module("mamba_ssm")
        assert mamba_ssm.__version__ == "9.9"
        assert Mamba.kernel is ops.selective_scan_fn
        assert rms_norm_ref() == "the original"
        assert mamba_ssm.ops.triton.layernorm_gated.rmsnorm_fn is ops.rmsnorm_fn
        with pytest.raises(ImportError, match="original, which cannot be imported: .*a_package_that_nobody_has"):
            mamba_ssm.ops.selective_scan_interface.selective_scan_ref


def test_restores_the_modules_that_were_there(monkeypatch):
    original = types.ModuleType("causal_conv1d_cuda")
    monkeypatch.setitem(sys.modules, "causal_conv1d_cuda", original)
    with adder.compat.install():
        assert importlib.import_module("causal_conv1d_cuda") is not original
    assert importlib.import_module("causal_conv1d_cuda") is original


def test_calls_nest():
    with pytest.raises(RuntimeError, match="install"):
        adder.compat.uninstall()
    with adder.compat.install():
        with adder.compat.install():
            pass
        assert adder.compat.installed()
        import selective_scan_cuda  # noqa: F401


def test_an_exception_uninstalls():
    with pytest.raises(KeyError):
        with adder.compat.install():
            raise KeyError("anything")


def test_installing_imports_neither_torch_nor_transformers():
    code = """if True:
        import sys, adder.compat
        adder.compat.install()
        import mamba_ssm.ops.triton.layer_norm, causal_conv1d_cuda
        sys.exit(f"{[name for name in ('torch', 'transformers') if name in sys.modules]}")
        """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == "[]"

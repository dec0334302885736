"""All tests of the operations once more, on a GPU that is emulated.

A module here takes the tests of the one beside this folder that has its name; the operations that they
find in adder.ops put NumPy arrays on the GPU and bring results back.
"""
import pytest
from device import HAVE_EMULATOR, on_device

from adder import ops

OPERATIONS = [name for name in ops.__all__ if "num_threads" not in name and name != "DeviceArray"]


# DLPack's results are row-major; a step and a scan are two kernels, with two orders of sums; and the
# emulator's memory is there whether it is used or not.
OF_THE_HOST = ["test_conv_keeps_the_order_in_memory", "test_steps_equal_the_scan", "test_offsets_beyond_32_bits"]


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.originalname not in OF_THE_HOST]
    if not HAVE_EMULATOR:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="this package has no emulated GPU"))


@pytest.fixture
def operations_on_the_device(monkeypatch):
    for name in OPERATIONS:
        monkeypatch.setattr(ops, name, on_device(getattr(ops, name)))

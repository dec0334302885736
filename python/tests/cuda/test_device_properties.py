"""test_ops_properties.py on the GPU: any layout gives the same bits, no operands end the process."""
import pytest
from test_ops_properties import *  # noqa: F401,F403

pytestmark = pytest.mark.usefixtures("operations_on_the_device")

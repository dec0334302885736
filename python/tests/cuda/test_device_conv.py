"""test_ops_conv.py on the GPU."""
import pytest
from test_ops_conv import *  # noqa: F401,F403

pytestmark = pytest.mark.usefixtures("operations_on_the_device")

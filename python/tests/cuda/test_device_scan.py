"""test_ops_scan.py on the GPU."""
import numpy as np
import pytest
from ops_inputs import rounded
from ops_reference import close
from test_ops_scan import *  # noqa: F401,F403
from test_ops_scan import scan_inputs

from adder import ops

pytestmark = pytest.mark.usefixtures("operations_on_the_device")


def test_steps_are_near_the_scan():
    values, _ = rounded(scan_inputs(batch=2, dim=70, seqlen=40), "float32")
    want, want_state = ops.selective_scan_fn(**values, delta_softplus=True, return_last_state=True)
    state = np.zeros_like(want_state)
    for t in range(40):
        at = {k: np.ascontiguousarray(values[k][..., t]) for k in ("u", "delta", "B", "C", "z")}
        y = ops.selective_state_update(state, at["u"], at["delta"], values["A"], at["B"], at["C"],
                                       values["D"], at["z"], values["delta_bias"], True)
        close(y, want[..., t])
    close(state, want_state)

"""A pytest plugin: keeps the forward half of each test, samples the cases, and records what became of them."""

import collections
import random
import re

import pytest
import torch

# Compares gradients only, so that no forward half is left.
_BACKWARD_ONLY = re.compile(r"bwd|backward|race_condition")
# What the test itself needs and this PyTorch, not Adder, cannot do: an operation on 16-bit floats on the
# CPU, or an index of int32.
_NOT_IN_TORCH = re.compile(
    r"not implemented for '(Half|BFloat16|ComplexHalf)'|tensors used as indices must be long"
)

OUTCOMES = ("passed", "forward passed", "failed", "not in torch", "skipped")


class _ForwardDone(Exception):
    """Raised where a test begins its backward pass."""


def _stop(*args, **kwargs):
    raise _ForwardDone


def selected(names_of_cases, limit):
    """At most `limit` cases of each test function, the same ones each time; all when limit is 0."""
    by_test = collections.defaultdict(list)
    for case in names_of_cases:
        by_test[case.partition("[")[0]].append(case)
    chosen = set()
    for test, cases in by_test.items():
        if limit and len(cases) > limit:
            cases = random.Random(test).sample(sorted(cases), limit)
        chosen.update(cases)
    return chosen


class ForwardHalves:
    def __init__(self, limit):
        self.limit = limit
        self.available = collections.Counter()  # test -> number of its cases
        self.results = []  # of {"test", "case", "outcome", "reason"}

    def pytest_collection_modifyitems(self, config, items):
        forward = [item for item in items if not _BACKWARD_ONLY.search(item.name)]
        self.available.update(self._test(item) for item in forward)
        chosen = selected([item.nodeid for item in forward], self.limit)
        items[:] = [item for item in forward if item.nodeid in chosen]

    def pytest_collectreport(self, report):
        if report.failed:  # a file that cannot be imported
            reason = str(report.longrepr).strip().rpartition("\n")[2]
            self.available[report.nodeid] += 1
            self.results.append(
                {"test": report.nodeid, "case": report.nodeid, "outcome": "failed", "reason": reason}
            )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        saved = torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad
        torch.Tensor.backward = torch.autograd.backward = torch.autograd.grad = _stop
        try:
            with torch.no_grad():
                outcome = yield
        finally:
            torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad = saved
        error = outcome.excinfo and outcome.excinfo[1]
        if isinstance(error, _ForwardDone):
            item.stash[_FORWARD] = True
            outcome.force_result(None)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if call.when != "call" and report.outcome == "passed":
            return
        outcome, reason = report.outcome, ""
        if outcome == "passed" and item.stash.get(_FORWARD, False):
            outcome = "forward passed"
        if outcome == "failed":
            reason = str(call.excinfo.value).strip().partition("\n")[0] or call.excinfo.typename
            if _NOT_IN_TORCH.search(reason) and not _inside_adder(call.excinfo):
                outcome = "not in torch"
        self.results.append(
            {"test": self._test(item), "case": item.nodeid, "outcome": outcome, "reason": reason}
        )

    @staticmethod
    def _test(item):
        return item.nodeid.partition("[")[0]

    def counts(self):
        """test -> Counter of its outcomes, in the order in which they ran."""
        counts = {test: collections.Counter() for test in self.available}
        for result in self.results:
            counts[result["test"]][result["outcome"]] += 1
        return counts


_FORWARD = pytest.StashKey()


def _inside_adder(excinfo):
    return "/adder/" in str(excinfo.traceback[-1].path)

"""Parts of make_golden.py: case table, weights, file writers, oracle, cross-checks."""

"""End-to-end test of the commands that measure. What they print is checked, not how fast it was.

Usage: measure_test.py PATH_TO_ADDER SOURCE_DIR [unittest options]
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ADDER = None
SOURCE = None
LIMITS = ["memory read", "L3 read", "L2 read", "float32 multiply-add", "int8 multiply-add",
          "float32 exp2"]


def adder(*arguments, expect=0, environment=None):
    """Runs the program; returns (stdout, stderr)."""
    done = subprocess.run([ADDER, *map(str, arguments)], capture_output=True, encoding="utf-8",
                          timeout=300, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    assert done.returncode == expect, (
        f"adder {arguments}: exit status {done.returncode}, expected {expect}\n{done.stderr}")
    return done.stdout, done.stderr


class Measure(unittest.TestCase):
    def is_spread(self, value):
        self.assertEqual(sorted(value), ["max", "median", "min"])
        self.assertTrue(0 < value["min"] <= value["median"] <= value["max"] < 1e12, value)

    def is_rate(self, value):
        self.assertTrue(math.isfinite(value) and value > 0, value)

    # validate

    def test_validate_says_how_far_devices_are_apart(self):
        out, err = adder("validate", "--devices", "ref,cpu", "--text", "The river runs", "--greedy", 8,
                         "--threads", 1, "--json")
        self.assertEqual(err, "")
        result = json.loads(out)
        self.assertEqual(result["greedy_tokens"], 8)
        ref, cpu = result["devices"]
        self.assertEqual([ref["device"], cpu["device"]], ["ref", "cpu"])
        for device in (ref, cpu):
            self.assertTrue(device["passed"], device)
            self.assertIsNone(device["first_other_token"])
        self.assertEqual(ref["logits"], {"relative": 0.0, "absolute": 0.0})
        self.assertGreater(cpu["logits"]["absolute"], 0)

    def test_validate_fails_beyond_its_bounds(self):
        out, err = adder("validate", "--greedy", 2, "--relative", "1e-12", "--tokens", "5,6,7", expect=1)
        self.assertIn("FAILED", out)
        self.assertEqual(err, "adder: validate: beyond the bounds: ref, cpu\n")
        _, err = adder("validate", "--devices", "gpu", "--tokens", "5,6", expect=1)
        self.assertIn("device: expected one of", err)

    # bench

    def test_bench_json_has_the_documented_fields(self):
        out, err = adder("bench", "--prompt", 300, "--gen", 4, "--batch", "1,3", "--repeat", 2,
                         "--threads", 1, "--json")
        self.assertEqual(err, "")  # no progress without a terminal
        result = json.loads(out)
        self.assertEqual(list(result)[:6], ["model", "cpu", "device", "block", "repeat", "weight_bytes"])
        self.assertEqual(result["model"], "demo")
        self.assertIn("1 thread", result["device"])
        self.assertGreater(result["load_s"], 0)
        self.assertGreater(result["peak_rss_bytes"], result["weight_bytes"])
        self.assertEqual(list(result["limits"]), LIMITS)
        for rate in result["limits"].values():
            self.is_rate(rate)
        self.assertEqual(result["prefill"]["tokens"], 300)
        self.assertEqual([(d["batch"], d["steps"]) for d in result["decode"]], [(1, 4), (3, 4)])
        for row in (result["prefill"], *result["decode"]):
            self.is_spread(row["seconds"])
            self.is_spread(row["tok_s"])
            for rate in ("weight_gb_s", "of_read", "gflop_s", "of_fma"):
                self.is_rate(row[rate])
        for row in result["decode"]:
            tokens = row["batch"] * row["steps"]
            self.assertAlmostEqual(row["tok_s"]["median"] * row["seconds"]["median"], tokens, delta=tokens * 1e-6)

    def test_bench_table_has_a_row_for_each_measurement(self):
        out, _ = adder("bench", "--prompt", 20, "--gen", 2, "--batch", "1,2", "--repeat", 1)
        rows = out.splitlines()
        self.assertEqual([r[:16].strip() for r in rows if r.startswith(("prefill", "decode"))],
                         ["prefill 20", "decode 2 x 1", "decode 2 x 2"])

    def test_bench_of_a_synthetic_model(self):
        out, _ = adder("bench", "--synthetic", "mamba2-130m", "--type", "bf16", "--prompt", 1,
                       "--gen", 1, "--repeat", 1, "--json")
        result = json.loads(out)
        self.assertEqual((result["model"], result["type"]), ("mamba2-130m", "bf16"))
        # 128.9 million parameters, nearly all of 2 bytes
        self.assertAlmostEqual(result["weight_bytes"] / 257.8e6, 1, delta=0.02)
        self.assertGreater(result["create_s"], 0)

    def test_wrong_arguments(self):
        for arguments in (("--synthetic", "mamba-3b"), ("--type", "q3_k", "--synthetic", "mamba-130m"),
                          ("--prompt", 0), ("--batch", "1,0"), ("--repeat", 0),
                          ("MODEL", "--synthetic", "mamba-130m")):
            adder("bench", *arguments, expect=2)
        _, err = adder("bench", "--top-p", 2, expect=1)
        self.assertIn("top-p", err)
        _, err = adder("bench", "/nowhere/at/all", expect=1)
        self.assertIn("/nowhere/at/all", err)

    # bench kernels

    def test_bench_kernels_json(self):
        out, err = adder("bench", "kernels", SOURCE / "tests" / "golden" / "mamba1_hf", "--types", "f32",
                         "--rows", "1,20", "--repeat", 1, "--seconds", 0, "--threads", 1, "--json")
        self.assertEqual(err, "")
        kernels = json.loads(out)["kernels"]
        for name in ("in_proj", "x_proj", "dt_proj", "out_proj", "head", "rms_norm", "causal_conv1d",
                     "selective_scan"):
            self.assertEqual([k["rows"] for k in kernels if k["name"] == name], [1, 20], name)
        for kernel in kernels:
            self.assertIn(kernel["limit"], LIMITS)
            self.is_rate(kernel["of_limit"])

    def test_bench_scan_climbs_the_ladder(self):
        out, err = adder("bench", "scan", "--tokens", 64, "--repeat", 1, "--seconds", 0, "--json")
        self.assertEqual(err, "")
        result = json.loads(out)
        self.assertEqual((result["d_inner"], result["d_state"]), (1536, 16))
        self.assertEqual(result["rungs"][0]["name"], "naive")
        self.assertEqual(result["rungs"][0]["speed_up"], 1)
        for rung in result["rungs"]:
            self.assertIn(rung["limit"], LIMITS)
            self.is_rate(rung["of_limit"])
        self.assertIn("speed-up", adder("bench", "scan", "--tokens", 64, "--repeat", 1, "--seconds", 0)[0])
        _, err = adder("bench", "scan", "--synthetic", "mamba2-130m", expect=1)
        self.assertIn("expected a Mamba-1 model", err)

    # tune

    def test_tune_keeps_its_choice_where_the_next_run_finds_it(self):
        with tempfile.TemporaryDirectory() as cache:
            environment = {"XDG_CACHE_HOME": cache}
            dry = json.loads(adder("tune", "--seconds", 0, "--dry-run", "--json", environment=environment)[0])
            self.assertNotIn("file", dry)
            self.assertEqual(os.listdir(cache), [])
            result = json.loads(adder("tune", "--seconds", 0, "--json", environment=environment)[0])
            self.assertIn(result["best"], [b["block"] for b in result["blocks"]])
            self.assertIn(256, [b["block"] for b in result["blocks"]])
            path = pathlib.Path(cache) / "adder" / "tune.json"
            self.assertEqual(result["file"], str(path))
            stored = json.loads(path.read_text())
            self.assertEqual(stored["entries"][result["key"]], {"block": result["best"]})

            stored["entries"][result["key"]] = {"block": 64}
            path.write_text(json.dumps(stored))
            bench = ("bench", "--prompt", 2, "--gen", 1, "--repeat", 1, "--json")
            self.assertEqual(json.loads(adder(*bench, environment=environment)[0])["block"], 64)
            self.assertEqual(json.loads(adder(*bench, "--block", 32, environment=environment)[0])["block"], 32)

    def test_a_broken_cache_is_a_note_and_no_error(self):
        with tempfile.TemporaryDirectory() as cache:
            want, _ = adder("run", "-n", 5, "x", environment={"XDG_CACHE_HOME": cache})
            (pathlib.Path(cache) / "adder").mkdir()
            (pathlib.Path(cache) / "adder" / "tune.json").write_text('{"version": 1, "entries": [')
            out, err = adder("run", "-n", 5, "x", environment={"XDG_CACHE_HOME": cache})
            self.assertEqual(out, want)
            self.assertRegex(err, r"\Aadder: note: [^\n]*tune\.json[^\n]*\n\Z")

    # roofline

    def test_roofline_limits(self):
        result = json.loads(adder("roofline", "--samples", 1, "--threads", 1, "--limits-only", "--json")[0])
        self.assertNotIn("bench", result)
        self.assertEqual([c["threads"] for c in result["ceilings"]], [1])
        names = [limit["limit"] for limit in result["ceilings"][0]["limits"]]
        self.assertEqual(names, LIMITS)
        for limit in result["ceilings"][0]["limits"]:
            self.assertEqual(limit["ceiling"], max(loop["median"] for loop in limit["loops"]))
            for loop in limit["loops"]:
                self.assertTrue(0 < loop["min"] <= loop["median"] <= loop["max"] < 1e16, loop)

    def test_roofline_holds_each_operation_against_its_limit(self):
        golden = SOURCE / "tests" / "golden"
        for model, scan in (("mamba1_hf", "selective_scan"), ("mamba2_hf", "ssd_scan")):
            out, err = adder("roofline", golden / model, "--samples", 1, "--threads", 1, "--json")
            self.assertEqual(err, "")
            bench = json.loads(out)["bench"]
            for phase in (bench["prefill"], bench["decode"][0]):
                operations = {op["name"]: op for op in phase["operations"]}
                for name in ("embedding", "rms_norm", "in_proj", "causal_conv1d", scan, "out_proj",
                             "head", "sample"):
                    op = operations[name]
                    self.assertGreaterEqual(op["calls"], 1)
                    self.assertIn(op["limit"], LIMITS)
                    for field in ("seconds", "seconds_per_token", "of_time", "limit_seconds", "of_limit"):
                        self.is_rate(op[field])
                # The operations' times are parts of the whole.
                self.assertLessEqual(sum(op["of_time"] for op in phase["operations"]), 1)

    def test_profile_table_names_every_operation(self):
        out, _ = adder("bench", "--prompt", 20, "--gen", 2, "--repeat", 1, "--profile")
        for phase in ("prefill 20 ", "decode 2 x 1 "):
            lines = out[out.index("\n\n" + phase):].split("\n\n")[1].splitlines()
            names = [line.split()[0] for line in lines[1:]]
            for name in ("in_proj", "causal_conv1d", "head", "(outside)", "all"):
                self.assertIn(name, names)


if __name__ == "__main__":
    ADDER = os.path.abspath(sys.argv.pop(1))
    SOURCE = pathlib.Path(sys.argv.pop(1))
    unittest.main()

"""End-to-end test of the commands about programs of the XLA backend, on its interpreter.

Usage: xla_test.py PATH_TO_ADDER SOURCE_DIR [unittest options]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ADDER = None
SOURCE = None
DEVICE = "xla:interpreter"


def adder(*arguments, expect=0):
    """Runs the program with an empty cache; returns (stdout, stderr)."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([ADDER, *map(str, arguments)], capture_output=True, encoding="utf-8",
                              timeout=300, stdin=subprocess.DEVNULL,
                              env={**os.environ, "XDG_CACHE_HOME": cache})
    assert done.returncode == expect, (
        f"adder {arguments}: exit status {done.returncode}, expected {expect}\n{done.stderr}")
    return done.stdout, done.stderr


class Compile(unittest.TestCase):
    def setUp(self):
        self.model = SOURCE / "tests/golden/mamba2_hf"

    def test_json_has_every_part(self):
        out, err = adder("compile", self.model, "--lengths", "3,40", "--batch", "1,2", "--block", 16,
                         "--device", DEVICE, "--json")
        self.assertEqual(err, "")
        result = json.loads(out)
        self.assertEqual((result["block"], result["slots"]), (16, 2))
        self.assertIn("interpreter", result["device"])
        parts = [(p["part"], p.get("length"), p["batch"]) for p in result["parts"]]
        self.assertEqual(parts, [("prompt", 3, 1), ("prompt", 3, 2), ("prompt", 40, 1),
                                 ("prompt", 40, 2), ("step", None, 1), ("loop", None, 1),
                                 ("step", None, 2), ("loop", None, 2)])
        self.assertGreater(result["parts"][0]["compiled"], 0)
        for part in result["parts"]:
            self.assertEqual((part["from_cache"], part["on_disk"]), (0, 0), part)
            self.assertGreater(part["seconds"], 0)

    def test_table_says_that_the_interpreter_keeps_nothing(self):
        out, _ = adder("compile", self.model, "--lengths", 5, "--device", DEVICE)
        rows = [line.rsplit(None, 3) for line in out.splitlines()[3:6]]
        self.assertEqual([row[0] for row in rows], ["prompt of 5", "step of 1", "decode loop of 1"])
        self.assertIn("Nothing is kept on the disk", out)

    def test_a_device_that_compiles_nothing_is_refused_in_one_line(self):
        for device in ("cpu", "ref"):
            out, err = adder("compile", self.model, "--lengths", 5, "--device", device, expect=1)
            self.assertEqual(out, "")
            self.assertEqual(len(err.splitlines()), 1)
            self.assertIn(f"expected a device that compiles programs (xla, xla:PLUGIN), got '{device}'", err)

    def test_wrong_usage(self):
        adder("compile", self.model, "--device", DEVICE, expect=2)  # no lengths
        adder("compile", self.model, "--lengths", "0", "--device", DEVICE, expect=2)
        _, err = adder("compile", self.model, "--lengths", 5, "--batch", 3, "--slots", 2,
                       "--device", DEVICE, expect=1)
        self.assertIn("batch: expected 1 to 2 sequences, got 3", err)


class Export(unittest.TestCase):
    def setUp(self):
        self.model = SOURCE / "tests/golden/mamba2_hf"

    def test_writes_a_folder_that_describes_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "exported"
            out, err = adder("export", self.model, "--stablehlo", target, "--blocks", "16,60", "--json")
            self.assertEqual(err, "")
            files = {f["name"]: f["bytes"] for f in json.loads(out)["files"]}
            self.assertEqual(sorted(files), ["generate.mlir", "manifest.json", "prefill_16.mlir",
                                             "prefill_64.mlir", "run.py", "step.mlir",
                                             "weights.safetensors"])
            self.assertEqual({p.name: p.stat().st_size for p in target.iterdir()}, files)
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["exported"])
            manifest = json.loads((target / "manifest.json").read_text())
            self.assertEqual([p["file"] for p in manifest["programs"]],
                             ["prefill_16.mlir", "prefill_64.mlir", "step.mlir", "generate.mlir"])
            compile((target / "run.py").read_text(), "run.py", "exec")  # is Python
            _, err = adder("export", self.model, "--stablehlo", target, expect=1)
            self.assertIn("expected a new or an empty folder", err)
            self.assertEqual({p.name: p.stat().st_size for p in target.iterdir()}, files)

    def test_wrong_usage(self):
        adder("export", self.model, expect=2)
        adder("export", self.model, "--stablehlo", "x", "--blocks", "1", expect=2)


if __name__ == "__main__":
    ADDER = sys.argv[1]
    SOURCE = pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

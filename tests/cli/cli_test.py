"""End-to-end test of the commands that need no network.

Usage: cli_test.py PATH_TO_ADDER SOURCE_DIR [unittest options]
"""

import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ADDER = None
GOLDEN = None


def adder(*arguments, text=None, expect=0, limit=None):
    """Runs the program; returns (stdout, stderr). `text` is its standard input."""
    done = subprocess.run([ADDER, *map(str, arguments)], input=text, capture_output=True,
                          encoding="utf-8", errors="surrogateescape", timeout=120, preexec_fn=limit,
                          stdin=None if text is not None else subprocess.DEVNULL)
    assert done.returncode == expect, (
        f"adder {arguments}: exit status {done.returncode}, expected {expect}\n{done.stderr}")
    return done.stdout, done.stderr


def run_json(*arguments, **keywords):
    return json.loads(adder("run", *arguments, "--json", **keywords)[0])


def ids(values):
    return ",".join(map(str, values))


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def expected(self, case):
        return json.loads((GOLDEN / case / "expected.json").read_text())

    def fails(self, *arguments, **keywords):
        """Exit status 1 and one line on stderr, which is returned."""
        out, err = adder(*arguments, expect=1, **keywords)
        self.assertRegex(err, r"\Aadder: [^\n]+\n\Z")
        return err

    # run

    def test_demo_model_answers_without_any_argument(self):
        out, err = adder("run")
        self.assertGreater(len(out), 60)
        self.assertEqual(err, "")

    def test_prompt_as_argument_and_on_standard_input_are_the_same(self):
        a, _ = adder("run", "-n", 40, "She was ")
        b, _ = adder("run", "-n", 40, text="She was ")
        self.assertEqual(a, b)
        self.assertEqual(len(a.encode()), 41)  # 40 bytes and a newline

    def test_the_same_text_every_time_and_another_with_another_seed(self):
        runs = [run_json("-n", 60, "--seed", seed, "--threads", threads, "She was ")["tokens"]
                for seed, threads in ((1, 1), (1, 2), (2, 1))]
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0], runs[2])

    def test_greedy_tokens_of_every_dialect(self):
        for folder in sorted(GOLDEN.iterdir()):
            if not (folder / "expected.json").exists():
                continue
            want = self.expected(folder.name)
            for device in ("cpu", "ref"):
                got = run_json(folder, "--tokens", ids(want["prompt"]), "-n", len(want["greedy"]),
                               "--temp", 0, "--ignore-eos", "--device", device)
                self.assertEqual(got["tokens"], want["greedy"], folder.name)
                self.assertEqual(got["prompt_tokens"], len(want["prompt"]))
                self.assertEqual(got["finish_reason"], "length")

    def test_json_object_has_the_documented_fields(self):
        got = run_json("-n", 5, "--logprobs", 3, "--temp", 0, "She was ")
        self.assertEqual(list(got), ["model", "device", "prompt_tokens", "cached_tokens", "tokens", "text",
                                     "finish_reason", "logprobs", "timings", "peak_rss_bytes"])
        self.assertEqual(list(got["timings"]),
                         ["load_s", "prefill_s", "prefill_tok_s", "decode_s", "decode_tok_s"])
        for token, entry in zip(got["tokens"], got["logprobs"], strict=True):
            self.assertEqual(entry["token"], token)
            self.assertEqual(entry["top"][0]["token"], token)  # greedy: the most probable one
            self.assertEqual(len(entry["top"]), 3)
            self.assertLessEqual(entry["logprob"], 0)

    def test_stop_string_ends_before_it(self):
        whole = run_json("-n", 60, "--temp", 0, "She was ")["text"]
        stop = whole[20:23]
        got = run_json("-n", 60, "--temp", 0, "--stop", stop, "She was ")
        self.assertEqual(got["text"], whole[: whole.index(stop)])
        self.assertEqual(got["finish_reason"], "stop")

    def test_ids_from_a_file_and_from_standard_input(self):
        case = GOLDEN / "mamba1_hf"
        prompt = ids(self.expected("mamba1_hf")["prompt"])
        (self.folder / "ids").write_text(prompt + "\n")
        want = run_json(case, "--tokens", prompt, "-n", 8)["tokens"]
        self.assertEqual(run_json(case, "--tokens", f"@{self.folder}/ids", "-n", 8)["tokens"], want)
        self.assertEqual(run_json(case, "--tokens", "-", "-n", 8, text=prompt)["tokens"], want)

    def test_interrupt_ends_the_generation_with_what_was_made(self):
        process = subprocess.Popen([ADDER, "run", "-n", "100000000", "She was "], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.assertTrue(process.stdout.read(20))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertTrue(out.endswith(b"\n"))

    # states

    def test_a_saved_state_continues_in_another_process(self):
        want = self.expected("mamba2_hf_groups4")
        case, prompt, greedy = GOLDEN / "mamba2_hf_groups4", want["prompt"], want["greedy"]
        state = self.folder / "state"
        common = ("--temp", 0, "--ignore-eos")
        adder("run", case, "--tokens", ids(prompt[:11]), "-n", 0, "--state-out", state)
        got = run_json(case, "--tokens", ids(prompt[11:]), "-n", 10, "--state-in", state, "--state-out",
                       state, *common)
        self.assertEqual(got["tokens"], greedy[:10])
        self.assertEqual((got["prompt_tokens"], got["cached_tokens"]), (len(prompt), 11))
        got = run_json(case, "-n", 10, "--state-in", state, *common)
        self.assertEqual(got["tokens"], greedy[10:20])
        self.assertEqual(got["cached_tokens"], len(prompt) + 10)

    def test_wrong_state_files_are_refused(self):
        state = self.folder / "state"
        adder("run", GOLDEN / "mamba1_hf", "--tokens", "1,2,3", "-n", 0, "--state-out", state)
        good = state.read_bytes()
        self.assertIn("another model", self.fails("run", GOLDEN / "mamba1_hf_f16", "-n", 1, "--state-in", state))
        for name, data in (("empty", b""), ("short", good[:100]), ("cut", good[:-1]),
                           ("long", good + b"x"), ("flipped", good[:-50] + bytes([good[-50] ^ 1]) + good[-49:])):
            (self.folder / name).write_bytes(data)
            err = self.fails("run", GOLDEN / "mamba1_hf", "-n", 1, "--state-in", self.folder / name)
            self.assertIn(str(self.folder / name), err)

    def test_a_state_that_cannot_be_written_leaves_nothing(self):
        (self.folder / "directory").mkdir()
        for target in (self.folder / "missing" / "state", self.folder / "directory"):
            self.fails("run", "-n", 1, "--state-out", target, "x")
        self.assertEqual([p.name for p in self.folder.rglob("*")], ["directory"])

    # score, logits, tokenize, inspect, chat

    def test_score_adds_up(self):
        text = self.folder / "text"
        text.write_text("It was a fine day.\nxqzj kkvw qq\nShe was very happy.\n")
        got = json.loads(adder("score", text, "--json")[0])
        lines = got["files"][0]["lines"]
        self.assertEqual([line["bytes"] for line in lines], [19, 13, 20])
        self.assertEqual(got["total"]["tokens"], 52)
        self.assertAlmostEqual(sum(line["nll"] for line in lines), got["total"]["nll"], places=6)
        self.assertAlmostEqual(got["total"]["bits_per_byte"], got["total"]["nll"] / math.log(2) / 52, places=9)
        self.assertAlmostEqual(got["total"]["perplexity"], math.exp(got["total"]["nll"] / 52), places=6)
        self.assertEqual(max(range(3), key=lambda i: lines[i]["bits_per_byte"]), 1)  # the odd one
        same = json.loads(adder("score", text, "--json", "--block", 7)[0])
        self.assertAlmostEqual(same["total"]["nll"], got["total"]["nll"], delta=1e-3)

    def test_logits_as_numbers_and_as_numpy_file(self):
        want = self.expected("mamba1_hf")
        case, prompt = GOLDEN / "mamba1_hf", ids(want["prompt"])
        rows = json.loads(adder("logits", case, "--tokens", prompt, "--last", 2, "--json")[0])
        self.assertEqual(rows["shape"], [2, want["vocab_rows"]])
        for got, expected in zip(rows["logits"][1], want["logits_last"], strict=True):
            self.assertLessEqual(abs(got - expected), 2e-5 + 2e-4 * abs(expected))
        out = self.folder / "logits.npy"
        adder("logits", case, "--tokens", prompt, "--last", 2, "--out", out)
        data = out.read_bytes()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        header = struct.unpack("<H", data[8:10])[0]
        self.assertEqual((10 + header) % 64, 0)
        shape = re.search(rb"'shape': \((\d+), (\d+)\)", data).groups()
        self.assertEqual(tuple(map(int, shape)), (2, want["vocab_rows"]))
        values = struct.unpack(f"<{2 * want['vocab_rows']}f", data[10 + header:])
        self.assertEqual(list(values), [v for row in rows["logits"] for v in map(to_float32, row)])

    def test_tokenize_and_back(self):
        text = "h\u00e9llo \u4f60\n"
        got = json.loads(adder("tokenize", "--json", text=text)[0])["ids"]
        self.assertEqual(got, list(text.encode()))
        self.assertEqual(adder("tokenize", "--decode", ids(got))[0], text)

    def test_inspect_tells_the_sizes(self):
        got = json.loads(adder("inspect", GOLDEN / "falcon_mamba", "--json")[0])
        self.assertEqual(got["family"], "falcon_mamba")
        self.assertEqual(got["tokenizer"], None)
        self.assertTrue(got["warnings"])
        self.assertIn("tied", adder("inspect")[0])

    def test_chat_keeps_the_conversation_in_the_state(self):
        out, err = adder("chat", "-n", 20, "--stats", text="Good morning.\nHow are you?\n/quit\n")
        counts = re.findall(r"(\d+) new prompt tokens, (\d+) from the state", err)
        self.assertEqual(len(counts), 2)
        self.assertEqual(counts[0][1], "0")
        self.assertGreater(int(counts[1][1]), 30)
        self.assertEqual(counts[1][0], str(len("\nHow are you?\n")))

    # conversion

    def test_converted_models_give_the_same_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            for source in sorted(GOLDEN.iterdir()):
                if not (source / "expected.json").exists():
                    continue
                want = self.expected(source.name)
                gguf, back = f"{folder}/{source.name}.gguf", f"{folder}/{source.name}"
                adder("convert", source, gguf)
                adder("convert", gguf, back)
                for model in (gguf, back):
                    got = run_json(model, "--tokens", ids(want["prompt"]), "-n", len(want["greedy"]),
                                   "--temp", 0, "--ignore-eos")
                    self.assertEqual(got["tokens"], want["greedy"], model)
            self.assertEqual([n for n in os.listdir(folder) if n.count(".") > 1], [])  # nothing temporary

    def test_conversion_keeps_the_tokenizer_and_refuses_the_source_as_target(self):
        with tempfile.TemporaryDirectory() as folder:
            gguf, back = f"{folder}/demo.gguf", f"{folder}/demo"
            adder("convert", "", gguf)
            adder("convert", gguf, back)
            want = run_json("It was a fine", "-n", 20, "--temp", 0)
            for model in (gguf, back):
                self.assertEqual(run_json(model, "It was a fine", "-n", 20, "--temp", 0)["text"], want["text"])
            before = pathlib.Path(gguf).read_bytes()
            _, err = adder("convert", gguf, gguf, expect=1)
            self.assertIn("expected another target than the source", err)
            _, err = adder("convert", gguf, back, expect=1)
            self.assertIn("expected a new or an empty folder", err)
            self.assertEqual(pathlib.Path(gguf).read_bytes(), before)
            _, err = adder("convert", "", f"{folder}/x.bin", expect=1)
            self.assertIn("expected a path that ends in .gguf", err)

    # mistakes

    def test_wrong_usage_is_status_2(self):
        for arguments in ((), ("bogus",), ("run", "--bogus"), ("run", "--device", "tpu"), ("run", "-n", "x"),
                          ("run", "-n", "-1"), ("logits",)):
            adder(*arguments, expect=2)

    def test_every_command_has_help(self):
        for command in ("run", "chat", "score", "logits", "tokenize", "inspect", "pull", "convert", "quantize",
                        "bench", "roofline", "tune"):
            self.assertIn("Usage", adder(command, "--help")[0])

    def test_bad_values_name_the_option(self):
        self.assertIn("temp", self.fails("run", "--temp", "-1", "x"))
        self.assertIn("top-p", self.fails("run", "--top-p", "1.5", "x"))
        self.assertIn("nan", self.fails("run", "--temp", "nan", "x"))
        self.assertIn("'x'", self.fails("run", "--tokens", "1,x,3"))
        self.assertIn("999", self.fails("run", GOLDEN / "mamba1_hf", "--tokens", "1,999"))
        self.assertIn("tokenizer", self.fails("run", GOLDEN / "mamba1_hf", "text"))

    def test_wrong_paths_and_files_give_one_line_fast(self):
        (self.folder / "empty").mkdir()
        (self.folder / "file.safetensors").write_bytes(b"")
        (self.folder / "config.json").write_text("{}")
        cut = self.folder / "cut"
        shutil.copytree(GOLDEN / "mamba1_hf", cut)
        weights = cut / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-10])
        wrong = self.folder / "wrong"
        shutil.copytree(GOLDEN / "mamba1_hf", wrong)
        config = json.loads((wrong / "config.json").read_text())
        config["hidden_size"] = 4096
        (wrong / "config.json").write_text(json.dumps(config))

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (2, 2))

        for path, word in ((self.folder / "none", "none"), (self.folder / "empty", "empty"),
                           (self.folder / "file.safetensors", "file.safetensors"),
                           (cut, "model.safetensors"), (wrong, "4096"), ("/dev/null", "/dev/null")):
            started = time.monotonic()
            self.assertIn(word, self.fails("run", path, "--tokens", "1", limit=limit))
            self.assertIn(word, self.fails("inspect", path, limit=limit))
            self.assertLess(time.monotonic() - started, 60)

    def test_a_prompt_spelled_like_a_repository_gets_a_hint(self):
        self.assertIn("standard input", self.fails("run", "and/or"))
        self.assertNotIn("standard input", self.fails("run", "and/or", "x"))

    def test_hostile_bytes_do_not_reach_the_terminal(self):
        for name in ("\x1b[31mx", "line\nline", "c1\u009b", "turn\u202e"):
            err = self.fails("inspect", self.folder / name)
            self.assertFalse(set(err[:-1]) & {"\x1b", "\n", "\u009b", "\u202e"}, repr(err))
        self.assertEqual(adder("tokenize", "\u00e9")[0], "195\t\\xc3\n169\t\\xa9\n")

    def test_deep_json_beside_a_tokenizer_costs_nothing(self):
        source = GOLDEN / "tokenizers" / "gpt2_nfc"
        if not source.exists():
            source = next((GOLDEN / "tokenizers").iterdir())
        shutil.copytree(source, self.folder / "t")
        (self.folder / "t" / "tokenizer_config.json").write_text("[" * 7_000_000)

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

        self.assertIn("64", self.fails("tokenize", self.folder / "t", "x", limit=limit))

    def test_a_full_disk_is_an_error(self):
        for arguments in (("run", "-n", 3, "x"), ("inspect",), ("logits", "--tokens", "1")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([ADDER, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, encoding="utf-8")
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("No space left", done.stderr)

    def test_output_that_goes_nowhere_ends_the_program(self):
        process = subprocess.Popen([ADDER, "run", "-n", "100000000", "x"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        self.assertNotEqual(process.wait(timeout=60), 0)

    # quantize

    def test_quantize_writes_a_model_that_runs_and_reports_its_errors(self):
        target = self.folder / "demo.gguf"
        out, err = adder("quantize", "", target, "--type", "q4_0")
        self.assertEqual(err, "")
        self.assertRegex(out, r"blk\.5\.ssm_in_dt\.weight +\(6, 192\) +BF16 > Q8_0 +8\.5 +0\.\d+ %")
        self.assertRegex(out, r"written and read back\n\Z")
        self.assertLess(target.stat().st_size, 1_000_000)
        self.assertEqual(os.listdir(self.folder), ["demo.gguf"])
        report = json.loads(adder("inspect", target, "--json")[0])
        self.assertEqual(report["dtypes"]["Q4_0"]["tensors"], 13)
        text = self.folder / "text"
        text.write_text("She was the youngest of the two daughters of a most affectionate father.\n")
        adder("quantize", "", self.folder / "same", "--type", "bf16")
        plain, small = (json.loads(adder("score", model, text, "--json")[0])["total"]["nll"]
                        for model in (self.folder / "same", target))
        self.assertAlmostEqual(small / plain, 1, delta=0.1)  # one line of text

    def test_quantize_json_calibration_and_warnings(self):
        text = self.folder / "text"
        text.write_text("The morning after the ball they walked to the village. " * 20)
        out, err = adder("quantize", "", self.folder / "a.gguf", "--type", "q4_0", "--calibration", text,
                         "--calibration-tokens", 300, "--json", "--threads", 1)
        report = json.loads(out)
        self.assertEqual(report["bytes"], sum(
            math.prod(t["shape"]) * t["bits_per_weight"] / 8 for t in report["tensors"]))
        self.assertEqual({t["to"] for t in report["tensors"]}, {"F32", "Q4_0", "Q8_0"})
        self.assertTrue(all(0 < t["relative_rms_error"] < 0.15 and t["max_error"] > 0
                            for t in report["tensors"] if t["to"] != "F32"))
        adder("quantize", "", self.folder / "b.gguf", "--type", "q4_0")
        self.assertNotEqual((self.folder / "a.gguf").read_bytes(), (self.folder / "b.gguf").read_bytes())
        out, err = adder("quantize", "", self.folder / "c.gguf", "--type", "q4_k")
        self.assertIn("warning: d_model 192 is no multiple of 256: Q8_0 instead of Q4_K", err)

    def test_quantize_refuses(self):
        self.assertIn("ends in .gguf", self.fails("quantize", "", self.folder / "x", "--type", "q8_0"))
        self.assertIn("cannot write", self.fails("quantize", "", "/dev/null.gguf/x.gguf"))
        self.assertIn("no such file", self.fails("quantize", self.folder / "no", self.folder / "x.gguf"))
        case = GOLDEN / "mamba1_hf"  # has no tokenizer
        self.assertIn("expected a tokenizer", self.fails(
            "quantize", case, self.folder / "x.gguf", "--type", "q4_0", "--calibration", "-", text="abc"))
        adder("quantize", "", self.folder / "x.gguf", "--type", "q2_k", expect=2)
        self.assertEqual(os.listdir(self.folder), [])


def to_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


if __name__ == "__main__":
    ADDER = os.path.abspath(sys.argv.pop(1))
    GOLDEN = pathlib.Path(sys.argv.pop(1)) / "tests" / "golden"
    unittest.main()

"""End-to-end test of `adder pull` against a fake hub on this machine.

Usage: pull_test.py PATH_TO_ADDER [unittest options]
"""

import hashlib
import http.server
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ADDER = None
REPO = "owner/model"
COMMIT = "a" * 40
WEIGHTS = "model.safetensors"
FILES = {
    "config.json": b'{"model_type": "mamba"}',
    "tokenizer.json": b'{"version": "1.0"}',
    WEIGHTS: random.Random(1).randbytes(3_000_000),
    "README.md": b"# not fetched",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = self.path.split("?")[0]
        hub.requests.append((path, dict(self.headers)))
        if hub.status != 200:
            return self.reply(hub.status, {}, b"no")
        if path == f"/api/models/{REPO}":
            return self.reply(200, {}, json.dumps(listing()).encode())
        match = re.fullmatch(f"/{REPO}/resolve/({COMMIT}|main)/(.+)", path)
        if not match or match[2] not in FILES:
            return self.reply(404, {}, b"no")
        content = FILES[match[2]]
        headers = {"ETag": '"%s"' % hashlib.sha256(content).hexdigest()}
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not wanted:
            return self.reply(200, headers, content)
        first = int(wanted[1])
        headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        return self.reply(206, headers, content[first:])

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        rate = self.server.hub.bytes_per_second
        step = len(body) if not rate else max(1, rate // 50)
        try:
            for at in range(0, len(body), max(step, 1)):
                self.wfile.write(body[at:at + step])
                if rate:
                    time.sleep(0.02)
        except ConnectionError:
            pass  # the client was interrupted, as the test wants


def listing():
    siblings = []
    for name, content in FILES.items():
        entry = {"rfilename": name, "size": len(content), "blobId": "%040x" % len(content)}
        if name == WEIGHTS:
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        siblings.append(entry)
    return {"id": REPO, "sha": COMMIT, "siblings": siblings}


class Hub:
    def __init__(self):
        self.requests, self.status, self.bytes_per_second = [], 200, 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.hub = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def files(self):
        return [path.rsplit("/", 1)[1] for path, _ in self.requests if "/resolve/" in path]

    def ranges(self, name):
        return [headers.get("Range") for path, headers in self.requests if path.endswith(name)]


class PullTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.root = tempfile.mkdtemp(prefix="adder_pull_")
        self.directory = os.path.join(self.root, "models", REPO)
        self.part = os.path.join(self.directory, WEIGHTS + ".part")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        self.environment.update(ADDER_CACHE=self.root, HF_ENDPOINT=self.hub.url)

    def tearDown(self):
        self.hub.stop()
        shutil.rmtree(self.root)

    def start(self, *arguments, **options):
        return subprocess.Popen([ADDER, "pull", *arguments], stdout=subprocess.PIPE,
                                stderr=options.pop("stderr", subprocess.PIPE), text=True,
                                env=self.environment, **options)

    def pull(self, *arguments):
        process = self.start(*(arguments or (REPO,)))
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def assert_one_line_error(self, result, text):
        code, out, err = result
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, r"\Aadder: [^\n]*\n\Z")
        self.assertIn(text, err)

    def assert_complete(self):
        for name in ("config.json", "tokenizer.json", WEIGHTS):
            with open(os.path.join(self.directory, name), "rb") as file:
                self.assertEqual(file.read(), FILES[name], name)
        self.assertEqual([n for n in os.listdir(self.directory) if ".part" in n], [])
        self.assertFalse(os.path.exists(os.path.join(self.directory, "README.md")))

    def wait_for_part(self, at_least):
        deadline = time.monotonic() + 30
        while not os.path.exists(self.part) or os.path.getsize(self.part) < at_least:
            self.assertLess(time.monotonic(), deadline, "the download does not advance")
            time.sleep(0.01)

    def test_downloads_then_is_up_to_date(self):
        self.environment["HF_TOKEN"] = "hf_token"
        code, out, err = self.pull()
        self.assertEqual((code, out), (0, self.directory + "\n"), err)
        self.assertEqual(err.splitlines(), [
            "config.json  23 B  verified", "tokenizer.json  18 B  verified",
            "model.safetensors  3.00 MB  verified",
            "owner/model: 3 files, 3.00 MB: downloaded 3 and verified"])
        self.assert_complete()
        for path, headers in self.hub.requests:
            self.assertEqual(headers.get("Authorization"), "Bearer hf_token", path)

        self.hub.requests.clear()
        code, out, err = self.pull()
        self.assertEqual((code, out), (0, self.directory + "\n"), err)
        self.assertEqual(err, "owner/model: 3 files, 3.00 MB: up to date\n")
        self.assertEqual(self.hub.files(), [])

        self.hub.stop()
        code, out, err = self.pull()
        self.assertEqual((code, out), (0, self.directory + "\n"), err)
        self.assertIn("3.00 MB: complete, not compared with " + self.hub.url, err)

    def test_directory_and_endpoint_can_be_given(self):
        self.environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
        target = os.path.join(self.root, "here")
        code, out, err = self.pull(REPO, target, "--endpoint", self.hub.url + "/")
        self.assertEqual((code, out), (0, target + "\n"), err)
        self.assertTrue(os.path.exists(os.path.join(target, WEIGHTS)))

    def interrupt_and_resume(self, number, expected_code):
        self.hub.bytes_per_second = 1_000_000
        process = self.start(REPO)
        self.wait_for_part(200_000)
        sent = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - sent, 5)
        self.assertEqual((process.returncode, out), (expected_code, ""), err)
        kept = os.path.getsize(self.part)
        self.assertGreaterEqual(kept, 200_000)
        self.assertLess(kept, len(FILES[WEIGHTS]))

        self.hub.bytes_per_second = 0
        self.hub.requests.clear()
        code, out, _ = self.pull()
        self.assertEqual((code, out), (0, self.directory + "\n"))
        self.assertEqual(self.hub.files(), [WEIGHTS], "finished files are not fetched again")
        self.assertEqual(self.hub.ranges(WEIGHTS), [f"bytes={kept}-"])
        self.assert_complete()
        return err

    def test_interrupt_keeps_the_part_and_resumes(self):
        err = self.interrupt_and_resume(signal.SIGINT, 1)
        self.assertEqual(err.splitlines()[-1],
                         "adder: cancelled; what was downloaded is kept, the same command resumes")

    def test_terminate_keeps_the_part_and_resumes(self):
        self.interrupt_and_resume(signal.SIGTERM, 1)

    def test_a_killed_download_resumes(self):
        self.interrupt_and_resume(signal.SIGKILL, -signal.SIGKILL)

    def test_one_download_at_a_time(self):
        self.hub.bytes_per_second = 1_000_000
        first = self.start(REPO)
        self.wait_for_part(1)
        self.assert_one_line_error(self.pull(), "another adder pull is at work in this directory")
        first.communicate(timeout=60)
        self.assertEqual(first.returncode, 0)
        self.assert_complete()

    def test_wrong_usage_is_status_2(self):
        for arguments in ((), (REPO, "a", "b"), (REPO, "--nonsense")):
            process = self.start(*arguments)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, arguments)

    def test_failures_are_one_line_and_status_1(self):
        self.assert_one_line_error(self.pull("model"), "expected owner/name")
        self.assert_one_line_error(self.pull("no/such"), "no/such: not found on " + self.hub.url)
        self.assert_one_line_error(self.pull(REPO, "--endpoint", "http://127.0.0.1:1"),
                                   "owner/model: http://127.0.0.1:1: ")
        self.hub.status = 401
        self.assert_one_line_error(self.pull(), "HF_TOKEN")

    def on_terminal(self):
        """What a terminal shows of the download's stderr."""
        reader, writer = pty.openpty()
        process = self.start(REPO, stderr=writer)
        os.close(writer)
        shown = b""
        while True:
            try:
                piece = os.read(reader, 4096)
            except OSError:  # how Linux tells that the other side is closed
                break
            if not piece:
                break
            shown += piece
        os.close(reader)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        return shown.decode()

    def test_a_terminal_sees_progress_of_slow_downloads_only(self):
        self.hub.bytes_per_second = 1_000_000
        shown = self.on_terminal()
        self.assertRegex(shown, r"\rmodel\.safetensors +\d+ %  [\d.]+ [kM]B of 3\.00 MB  "
                                r"[\d.]+ [kM]?B/s  ETA 0:0\d")
        self.assertTrue(shown.endswith("downloaded 3 and verified\r\n"), shown)

        shutil.rmtree(self.directory)
        self.hub.bytes_per_second = 0
        self.assertEqual(self.on_terminal(),
                         "owner/model: 3 files, 3.00 MB: downloaded 3 and verified\r\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ADDER = os.path.abspath(sys.argv.pop(1))
    unittest.main()

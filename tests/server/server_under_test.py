"""Starts `adder serve` on a free port and talks to it; for the tests of this folder."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import threading
import time


class Server:
    """A running `adder serve`; a context manager that ends it and looks at its exit status."""

    def __init__(self, adder, *arguments, key=None, env=None):
        self.key = key  # of every request, unless its headers have another
        keys = [] if key is None else ["--api-key", key]
        self.process = subprocess.Popen(
            [adder, "serve", *map(str, arguments), *keys, "--port", "0"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
            errors="surrogateescape", env=env)
        self.log = []
        self.ready = threading.Event()
        self.port = 0
        self.killed = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(60) or not self.port:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("adder serve did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.match(r"adder: serving (\S+) on https?://.*:(\d+)$", line)
            if found:
                self.port = int(found.group(2))
                self.ready.set()
        self.ready.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def stop(self):
        """Asks it to end; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self.reader.join(10)
        self.process.stderr.close()
        return status

    def __exit__(self, kind, *_):
        status = self.stop()
        if kind is None and status != 0 and not self.killed:
            raise AssertionError(f"exit status {status}, expected 0:\n" + "".join(self.log[-20:]))

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def send(self, method, path, body=None, headers=None):
        """(status, headers, bytes of the answer). `body`: bytes, or what becomes JSON."""
        headers = dict(headers or {})
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        with contextlib.closing(self.connect()) as connection:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def json(self, method, path, body=None, expect=200, headers=None):
        status, _, answer = self.send(method, path, body, headers)
        assert status == expect, f"{method} {path}: {status}, expected {expect}: {answer[:500]}"
        return json.loads(answer)

    def post(self, path, body, expect=200):
        return self.json("POST", path, body, expect)

    def get(self, path, expect=200):
        return self.json("GET", path, None, expect)

    def stream(self, path, body):
        """The events of a streamed answer as they come; the last one is "[DONE]"."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield from events(answer)

    def metrics(self):
        """Samples by name with labels."""
        text = self.send("GET", "/metrics")[2].decode()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def wait_for(self, name, value, seconds=20):
        """Until a metric has the value; what the engine tells comes a fraction of a second late."""
        end = time.monotonic() + seconds
        while (now := self.metrics()[name]) != value:
            assert time.monotonic() < end, f"{name}: expected {value} within {seconds} s, got {now}"
            time.sleep(0.02)

    def wait_until_idle(self, seconds=20):
        self.wait_for("adder_queue_length", 0, seconds)
        self.wait_for("adder_running_requests", 0, seconds)

    def wait_until(self, condition, seconds=30):
        """Asks until `condition()` is true."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)

    def idle(self):
        """True when nothing runs and every slot is free."""
        m = self.metrics()
        return m["adder_running_requests"] == 0 and m['adder_slots{state="used"}'] == 0


def events(answer):
    for line in answer:
        line = line.rstrip(b"\n")
        if not line:
            continue
        assert line.startswith(b"data: "), line
        data = line[6:].decode()
        if data == "[DONE]":
            yield data
            assert answer.read().strip() == b""
            return
        yield json.loads(data)

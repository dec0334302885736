"""A real `adder serve` on a free port of this machine, for the tests with real clients."""

import json
import queue
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request


class Server:
    """Serves the demo model until stop(). `options` go to the command line as they are."""

    def __init__(self, adder, *options, key=None):
        self.key = key
        arguments = [adder, "serve", "--port", "0", *map(str, options)]
        if key is not None:
            arguments += ["--api-key", key]
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines, self.said = queue.Queue(), []
        threading.Thread(target=self._read, daemon=True).start()
        self.url = self._find_url()

    def _read(self):
        # To the end, or the server would stop when the pipe is full.
        for line in self.process.stdout:
            self.said.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def _find_url(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                line = self.lines.get(timeout=1)
            except queue.Empty:
                continue
            if line is None:
                break
            found = re.search(r"https?://127\.0\.0\.1:\d+", line)
            if found:
                return found[0]
        self.stop()
        raise AssertionError("adder serve did not say where it listens:\n" + "".join(self.said))

    def stop(self):
        """Asks it to end; returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("adder serve did not end within 30 s of SIGTERM") from None
        self.process.stdout.close()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def request(self, path, body=None, method=None):
        """(status, text) of one request."""
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def json(self, path, body=None, method=None):
        status, text = self.request(path, body, method)
        assert status < 300, f"{path}: status {status}\n{text}"
        return json.loads(text)

    def metric(self, name):
        """The value of a line of /metrics, which begins with its name and labels."""
        found = re.findall(rf"^{re.escape(name)} (\S+)$", self.request("/metrics")[1], re.M)
        assert len(found) == 1, f"/metrics has {len(found)} lines of {name}"
        return float(found[0])

    def wait_for(self, name, value, seconds=20):
        """Until a metric has the value; what the engine tells comes a fraction of a second late."""
        end = time.monotonic() + seconds
        while (now := self.metric(name)) != value:
            assert time.monotonic() < end, f"{name}: expected {value} within {seconds} s, got {now}"
            time.sleep(0.02)

    def wait_until_idle(self, seconds=20):
        self.wait_for("adder_queue_length", 0, seconds)
        self.wait_for("adder_running_requests", 0, seconds)

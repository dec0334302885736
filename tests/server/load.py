"""Many streaming clients against one server, for a bounded time.

Usage: load.py [--url http://127.0.0.1:8080 | --adder PATH_TO_ADDER [-- options of adder serve]]
               [--clients 256] [--seconds 60] [--max-tokens 128] [--long-prompt 32768] [--check]

Every client sends one streaming completion after another until the time is up, and lets the last
one end. Reported are failures, tokens per second over all clients, the slowest client's share of
the mean, percentiles of the gaps between two chunks and of the time to the first, and how the
server's resident memory grew after the first sixth of the time. --check: exit status 1 when a
request failed or the slowest client got less than half of the mean. --long-prompt: at half of the
time one more client sends a prompt of so many tokens, and the gaps of the others before that and
during it are reported. Standard library only.
"""

import argparse
import asyncio
import json
import os
import pathlib
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server_under_test import Server  # noqa: E402


class Client:
    def __init__(self, number):
        self.number = number
        self.tokens = self.requests = 0
        self.failures = []
        self.gaps, self.firsts = [], []  # (when it ended, seconds)

    async def run(self, address, body, end):
        while time.monotonic() < end:
            try:
                await self.ask(address, {**body, "seed": self.number * 1_000_003 + self.requests})
                self.requests += 1
            except (OSError, ValueError, asyncio.IncompleteReadError, KeyError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.1)

    async def ask(self, address, body):
        data = json.dumps(body).encode()
        began = last = time.monotonic()
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            await writer.drain()
            status = await reader.readline()
            if b" 200 " not in status:
                raise ValueError(status.decode(errors="replace").strip())
            usage, done = None, False
            while line := await reader.readline():
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    done = True
                    continue
                now = time.monotonic()
                if b'"error"' in line:
                    raise ValueError(line.decode(errors="replace").strip())
                if b'"usage":{' in line:
                    usage = json.loads(line[6:])["usage"]
                elif b'"finish_reason":null' in line:
                    (self.firsts if last == began else self.gaps).append((now, now - last))
                    last = now
            if not done or usage is None:
                raise ValueError("the stream ended early")
            self.tokens += usage["completion_tokens"]
        finally:
            writer.close()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def resident(address):
    """Bytes, from /metrics."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    try:
        for line in (await reader.read()).splitlines():
            if line.startswith(b"process_resident_memory_bytes "):
                return float(line.split()[1])
    finally:
        writer.close()
    raise ValueError("no process_resident_memory_bytes in /metrics")


def gaps_between(clients, begin, end):
    """Percentiles of the gaps that ended then, in milliseconds."""
    gaps = [gap for c in clients for now, gap in c.gaps if begin <= now < end]
    return {f"p{p}": round(1e3 * percentile(gaps, p / 100), 2) for p in (50, 90, 99)} | {
        "max": round(1e3 * max(gaps, default=float("nan")), 2)}


async def interrupt(address, everybody, body, tokens, began, seconds):
    """A long prompt at half of the time, and what the others noticed of it."""
    await asyncio.sleep(seconds / 2)
    client = Client(len(everybody))
    sent = time.monotonic()
    await client.ask(address, {**body, "prompt": [32 + i * 7 % 90 for i in range(tokens)], "max_tokens": 1})
    done = time.monotonic()
    return {"tokens": tokens, "seconds": round(done - sent, 2),
            "gap_ms_before": gaps_between(everybody, began, sent),
            "gap_ms_during": gaps_between(everybody, sent, done)}


async def load(address, clients, seconds, max_tokens, long_prompt):
    body = {"prompt": "It was a fine morning, and ", "max_tokens": max_tokens, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}, "cache": False}
    everybody = [Client(i) for i in range(clients)]
    began = time.monotonic()
    tasks = [asyncio.create_task(c.run(address, body, began + seconds)) for c in everybody]
    guest = (asyncio.create_task(interrupt(address, everybody, body, long_prompt, began, seconds))
             if long_prompt else None)
    await asyncio.sleep(seconds / 6)
    warm = await resident(address)
    await asyncio.gather(*tasks)
    took = time.monotonic() - began
    grown = await resident(address) - warm
    failures = [f for c in everybody for f in c.failures]
    firsts = [first for c in everybody for _, first in c.firsts]
    tokens = [c.tokens for c in everybody]
    mean = sum(tokens) / len(tokens)
    return {
        "clients": clients,
        "seconds": round(took, 2),
        "requests": sum(c.requests for c in everybody),
        "failures": len(failures),
        "first_failure": failures[0] if failures else None,
        "tokens": sum(tokens),
        "tokens_per_s": round(sum(tokens) / took, 1),
        "slowest_of_mean": round(min(tokens) / mean, 3) if mean else 0.0,
        "gap_ms": gaps_between(everybody, began, float("inf")),
        "first_ms": {f"p{p}": round(1e3 * percentile(firsts, p / 100), 2) for p in (50, 99)},
        "rss_bytes": int(warm + grown),
        "rss_growth_bytes": int(grown),
    } | ({"long_prompt": await guest} if guest else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url")
    where.add_argument("--adder", type=pathlib.Path)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--long-prompt", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("options", nargs="*", help="of adder serve, after --")
    a = parser.parse_args()
    if a.url:
        url = urllib.parse.urlsplit(a.url)
        report = asyncio.run(load((url.hostname, url.port or 80), a.clients, a.seconds, a.max_tokens, a.long_prompt))
    else:
        slots = [] if "--slots" in a.options else ["--slots", a.clients]
        with Server(a.adder.resolve(), "--log", "off", *slots, *a.options) as server:
            report = asyncio.run(load(("127.0.0.1", server.port), a.clients, a.seconds, a.max_tokens, a.long_prompt))
    print(json.dumps(report, indent=2))
    return 1 if a.check and (report["failures"] or report["slowest_of_mean"] < 0.5) else 0


if __name__ == "__main__":
    sys.exit(main())

"""End-to-end test of `adder serve` with the demo model.

Usage: server_test.py PATH_TO_ADDER SOURCE_DIR [unittest options]
"""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_under_test import Server, events

ADDER = None
SOURCE = None
DEMO_LAYERS = None


def text_of(chunks):
    """The text of a stream's first choice."""
    parts = []
    for chunk in chunks:
        for choice in chunk["choices"] if chunk != "[DONE]" else []:
            if choice["index"] == 0:
                parts.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
    return "".join(parts)


class WithServer(unittest.TestCase):
    """One server for all tests of a class."""

    arguments = ("--slots", "4", "--log", "off")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(ADDER, *cls.arguments)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def tearDown(self):
        # Whatever a test did, no slot is lost and the next request is answered.
        self.server.wait_until(self.server.idle)

    def complete(self, prompt="She was ", **options):
        return self.server.post("/v1/completions", {"prompt": prompt, **options})

    def fails(self, path, body, status, param=None, method="POST"):
        """An error in OpenAI's shape; returns it."""
        answer = self.server.json(method, path, body, status)
        self.assertEqual(list(answer), ["error"])
        self.assertEqual(sorted(answer["error"]), ["code", "message", "param", "type"])
        self.assertEqual(answer["error"]["param"], param)
        self.assertTrue(answer["error"]["message"])
        return answer["error"]


class Completions(WithServer):
    def test_answer_has_openais_fields(self):
        answer = self.complete(max_tokens=8, temperature=0)
        self.assertEqual(list(answer), ["id", "object", "created", "model", "choices", "usage", "timings"])
        self.assertRegex(answer["id"], r"\Acmpl-[0-9a-f]{16}\Z")
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["model"], "demo")
        self.assertAlmostEqual(answer["created"], time.time(), delta=60)
        choice, = answer["choices"]
        self.assertEqual(sorted(choice), ["finish_reason", "index", "logprobs", "text"])
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(len(choice["text"].encode()), 8)
        usage = answer["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
                         (8, 8, 16))
        self.assertIn("cached_tokens", usage["prompt_tokens_details"])
        self.assertGreater(answer["timings"]["decode_tok_s"], 0)

    def test_answer_equals_the_command_line(self):
        out = subprocess.run([ADDER, "run", "--json", "-n", "60", "--temp", "0.7", "--top-p", "0.9",
                              "--seed", "11", "She was "], capture_output=True, check=True)
        answer = self.complete(max_tokens=60, temperature=0.7, top_p=0.9, seed=11)
        self.assertEqual(answer["choices"][0]["text"], json.loads(out.stdout)["text"])

    def test_stream_is_the_same_text_in_pieces(self):
        body = {"prompt": "She was ", "max_tokens": 50, "seed": 5}
        whole = self.server.post("/v1/completions", body)
        chunks = list(self.server.stream("/v1/completions", body))
        self.assertEqual(chunks.pop(), "[DONE]")
        self.assertGreater(len(chunks), 20)
        self.assertEqual(text_of(chunks), whole["choices"][0]["text"])
        self.assertEqual({chunk["object"] for chunk in chunks}, {"text_completion"})
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        ends = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        self.assertEqual(ends[-1], "length")
        self.assertEqual(set(ends[:-1]), {None})
        self.assertNotIn("usage", chunks[0])

    def test_stream_ends_with_usage_when_asked(self):
        body = {"prompt": "She was ", "max_tokens": 5, "stream_options": {"include_usage": True}}
        *chunks, last, done = self.server.stream("/v1/completions", body)
        self.assertEqual(done, "[DONE]")
        self.assertEqual(last["choices"], [])
        self.assertEqual(last["usage"]["completion_tokens"], 5)
        self.assertIn("prefill_s", last["timings"])
        self.assertEqual({chunk["usage"] for chunk in chunks}, {None})

    def test_no_piece_of_a_stream_splits_a_character(self):
        # The demo model speaks bytes: a bias makes it write the two bytes of one character.
        body = {"prompt": "x", "max_tokens": 9, "temperature": 0,
                "grammar": 'root ::= "\u00e9" "\u20ac" "\U0001f600"'}
        chunks = list(self.server.stream("/v1/completions", body))
        pieces = [chunk["choices"][0]["text"] for chunk in chunks[:-1] if chunk["choices"][0]["text"]]
        self.assertEqual(pieces, ["\u00e9", "\u20ac", "\U0001f600"])

    def test_seeds(self):
        first, again, other = (self.complete(max_tokens=40, seed=seed)["choices"][0]["text"]
                               for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        without = {self.complete(max_tokens=40)["choices"][0]["text"] for _ in range(3)}
        self.assertEqual(len(without), 3)

    def test_several_choices_are_those_of_consecutive_seeds(self):
        answer = self.complete(max_tokens=30, seed=7, n=3)
        texts = [choice["text"] for choice in answer["choices"]]
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2])
        self.assertEqual(texts, [self.complete(max_tokens=30, seed=7 + i)["choices"][0]["text"]
                                 for i in range(3)])
        self.assertEqual(answer["usage"]["completion_tokens"], 90)
        self.assertEqual(answer["usage"]["prompt_tokens"], 8)

    def test_several_prompts_are_answered_in_their_order(self):
        prompts = ["She was ", "The morning after ", "x"]
        answer = self.complete(prompts, max_tokens=10, temperature=0, n=2)
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(6)))
        for i, prompt in enumerate(prompts):
            alone = self.complete(prompt, max_tokens=10, temperature=0)["choices"][0]["text"]
            self.assertEqual(answer["choices"][2 * i]["text"], alone)
            self.assertEqual(answer["choices"][2 * i + 1]["text"], alone)
        chunks = list(self.server.stream("/v1/completions", {"prompt": prompts, "max_tokens": 3}))
        self.assertEqual({chunk["choices"][0]["index"] for chunk in chunks[:-1]}, {0, 1, 2})

    def test_tokens_are_prompts_too(self):
        text = self.complete("She was ", max_tokens=10, temperature=0)["choices"][0]["text"]
        ids = list(b"She was ")
        self.assertEqual(self.complete(ids, max_tokens=10, temperature=0)["choices"][0]["text"], text)
        both = self.complete([ids, ids], max_tokens=10, temperature=0)
        self.assertEqual([choice["text"] for choice in both["choices"]], [text, text])

    def test_echo(self):
        plain = self.complete(max_tokens=6, temperature=0)["choices"][0]["text"]
        self.assertEqual(self.complete(max_tokens=6, temperature=0, echo=True)["choices"][0]["text"],
                         "She was " + plain)
        chunks = self.server.stream("/v1/completions", {"prompt": list(b"She was "), "max_tokens": 6,
                                                        "temperature": 0, "echo": True})
        self.assertEqual(text_of(chunks), "She was " + plain)

    def test_stop_strings_are_never_shown(self):
        whole = self.complete(max_tokens=60, temperature=0)["choices"][0]["text"]
        stop = whole[20:23]
        for value in (stop, ["never there", stop]):
            choice = self.complete(max_tokens=60, temperature=0, stop=value)["choices"][0]
            self.assertEqual(choice["text"], whole[:whole.index(stop)])
            self.assertEqual(choice["finish_reason"], "stop")
        chunks = self.server.stream("/v1/completions", {"prompt": "She was ", "max_tokens": 60,
                                                        "temperature": 0, "stop": stop})
        self.assertEqual(text_of(chunks), whole[:whole.index(stop)])

    def test_logprobs(self):
        choice = self.complete(max_tokens=6, temperature=0, logprobs=3)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual(sorted(logprobs), ["text_offset", "token_logprobs", "tokens", "top_logprobs"])
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        self.assertEqual(logprobs["text_offset"], list(range(6)))
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"], strict=True):
            self.assertEqual(len(top), 3)
            self.assertEqual(max(top, key=top.get), token)  # greedy
            self.assertEqual(top[token], value)
        chunks = list(self.server.stream("/v1/completions", {"prompt": "She was ", "max_tokens": 6,
                                                             "temperature": 0, "logprobs": 3}))[:-1]
        streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
        for field, values in logprobs.items():
            self.assertEqual(sum((one[field] for one in streamed), []), values)

    def test_biases_and_penalties_change_what_is_chosen(self):
        self.assertEqual(self.complete(max_tokens=5, logit_bias={"65": 100})["choices"][0]["text"], "AAAAA")
        plain = self.complete(max_tokens=40, temperature=0)["choices"][0]["text"]
        banned = self.complete(max_tokens=40, temperature=0, logit_bias={str(ord("e")): -100})
        self.assertNotIn("e", banned["choices"][0]["text"])
        penal = self.complete(max_tokens=40, temperature=0, frequency_penalty=2, presence_penalty=2)
        self.assertGreater(len(set(penal["choices"][0]["text"])), len(set(plain)))

    def test_grammar(self):
        choice = self.complete(max_tokens=50, grammar='root ::= "yes" | "no"')["choices"][0]
        self.assertIn(choice["text"], ("yes", "no"))
        self.assertEqual(choice["finish_reason"], "stop")
        error = self.fails("/v1/completions", {"prompt": "x", "grammar": "root ::= ("}, 400, "grammar")
        self.assertIn("line", error["message"])

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"z": {"type": "boolean"}, "a": {"enum": [1, 2]}},
                  "required": ["z", "a"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        for seed in range(3):
            choice = self.complete(max_tokens=200, seed=seed, response_format=form)["choices"][0]
            got = json.loads(choice["text"])
            self.assertEqual(list(got), ["z", "a"])
            self.assertIn(got["a"], (1, 2))
        self.fails("/v1/completions", {"prompt": "x", "response_format": {
            "type": "json_schema", "json_schema": {"schema": {"type": "banana"}}}}, 400, "response_format")

    def test_empty_prompt_begins_a_text(self):
        self.assertEqual(self.complete("", max_tokens=3)["usage"]["prompt_tokens"], 1)

    def test_errors(self):
        # The table of bad fields is tests/server/openai_request_test.cc; here is the way through HTTP.
        self.fails("/v1/completions", b"{", 400)
        self.fails("/v1/completions", b"\xff", 400)
        self.fails("/v1/completions", {}, 400, "prompt")
        self.fails("/v1/completions", {"prompt": "x", "temperature": 3}, 400, "temperature")
        error = self.fails("/v1/completions", {"prompt": "x", "model": "gpt-4"}, 404, "model")
        self.assertEqual(error["code"], "model_not_found")
        self.fails("/v1/nothing", {}, 404)
        status, headers, body = self.server.send("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertIn("error", json.loads(body))
        self.fails("/v1/completions", {"prompt": "x", "n": 5}, 400, "n")  # more than slots

    def test_large_bodies_take_the_other_way_in(self):
        answer = self.complete("word " * 8000, max_tokens=1)
        self.assertEqual(answer["usage"]["prompt_tokens"], 40000)
        self.fails("/v1/completions", {"prompt": "x" * 40000, "top_p": 7}, 400, "top_p")

    def test_prompts_that_begin_alike_are_cached(self):
        prompt = "".join(random.Random(1).choices("abcdefgh ", k=3000))
        first = self.complete(prompt, max_tokens=20, temperature=0)
        second = self.complete(prompt, max_tokens=20, temperature=0)
        longer = self.complete(prompt + "more", max_tokens=1, temperature=0)
        cold = self.complete(prompt, max_tokens=20, temperature=0, cache=False)
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, second, longer, cold)]
        self.assertEqual(cached[0], 0)
        self.assertGreaterEqual(cached[1], 2048)
        self.assertGreaterEqual(cached[2], 2048)
        self.assertEqual(cached[3], 0)
        self.assertEqual(first["choices"][0]["text"], second["choices"][0]["text"])
        self.assertEqual(first["choices"][0]["text"], cold["choices"][0]["text"])

    def test_deadline(self):
        error = self.fails("/v1/completions", {"prompt": "x", "max_tokens": 4096, "ignore_eos": True,
                                               "timeout_s": 0.02}, 408)
        self.assertEqual(error["type"], "timeout")

    def test_client_that_goes_away_frees_its_slot(self):
        def cancelled():
            return self.server.metrics()['adder_generations_total{end="cancelled"}']
        before = cancelled()
        with contextlib.closing(self.server.connect()) as connection:
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "x", "max_tokens": 4096, "ignore_eos": True, "stream": True}))
            answer = connection.getresponse()
            answer.readline()
        self.server.wait_until(self.server.idle)
        # A client that waits for a whole answer can go as well.
        with socket.create_connection(("127.0.0.1", self.server.port)) as plain:
            body = json.dumps({"prompt": "x", "max_tokens": 4096, "ignore_eos": True}).encode()
            plain.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                          % (len(body), body))
            self.server.wait_until(lambda: not self.server.idle())
        self.server.wait_until(lambda: cancelled() == before + 2)

    def test_company_does_not_change_an_answer(self):
        def ask(seed):
            return self.complete(f"Number {seed} was ", max_tokens=30, seed=seed)["choices"][0]["text"]
        alone = [ask(seed) for seed in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertEqual(list(pool.map(ask, range(12))), alone)


class Chat(WithServer):
    def chat(self, content="Hello", **options):
        return self.server.post("/v1/chat/completions",
                                {"messages": [{"role": "user", "content": content}], **options})

    def test_answer_has_openais_fields(self):
        answer = self.chat(max_tokens=8)
        self.assertRegex(answer["id"], r"\Achatcmpl-[0-9a-f]{16}\Z")
        self.assertEqual(answer["object"], "chat.completion")
        message = answer["choices"][0]["message"]
        self.assertEqual(sorted(message), ["content", "refusal", "role"])
        self.assertEqual(message["role"], "assistant")
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_stream_begins_with_the_role(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20, "seed": 3}
        whole = self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        chunks = list(self.server.stream("/v1/chat/completions", body))
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual({chunk["object"] for chunk in chunks[:-1]}, {"chat.completion.chunk"})
        self.assertEqual(chunks[-2]["choices"][0]["delta"], {})
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(text_of(chunks), whole)

    def test_plain_template_joins_the_messages(self):
        messages = [{"role": "system", "content": "A."}, {"role": "user", "content": "B."}]
        chat = self.server.post("/v1/chat/completions",
                                {"messages": messages, "max_tokens": 12, "temperature": 0})
        plain = self.server.post("/v1/completions",
                                 {"prompt": "A.\nB.\n", "max_tokens": 12, "temperature": 0})
        self.assertEqual(chat["choices"][0]["message"]["content"], plain["choices"][0]["text"])

    def test_logprobs(self):
        choice = self.chat(max_tokens=4, temperature=0, logprobs=True, top_logprobs=2)["choices"][0]
        entries = choice["logprobs"]["content"]
        self.assertEqual(bytes(sum((e["bytes"] for e in entries), [])).decode(), choice["message"]["content"])
        for entry in entries:
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertLessEqual(entry["logprob"], 0)

    def test_json_object(self):
        choice = self.chat(max_tokens=60, seed=4, response_format={"type": "json_object"})["choices"][0]
        if choice["finish_reason"] == "stop":
            self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
        else:
            self.assertTrue(choice["message"]["content"].startswith("{"))

    def test_what_is_not_supported_says_so(self):
        messages = [{"role": "user", "content": "x"}]
        error = self.fails("/v1/chat/completions", {"messages": messages, "tools": [{"type": "function"}]},
                           400, "tools")
        self.assertIn("not supported", error["message"])
        self.fails("/v1/chat/completions", {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "messages[0].content[0].type")


class Information(WithServer):
    arguments = ("--slots", "4", "--log", "off", "--alias", "gpt-4", "--monitor-every", "4")

    def test_models(self):
        models = self.server.get("/v1/models")
        self.assertEqual([model["id"] for model in models["data"]], ["demo", "gpt-4"])
        self.assertEqual(self.server.get("/v1/models/demo")["object"], "model")
        self.assertEqual(self.fails("/v1/models/a%2Fb", None, 404, "model", "GET")["code"], "model_not_found")
        self.server.get("/v1/models/a/b", 404)
        self.assertEqual(self.complete(model="gpt-4", max_tokens=1)["model"], "demo")

    def test_tokenize_and_back(self):
        tokens = self.server.post("/tokenize", {"content": "h\u00e9"})["tokens"]
        self.assertEqual(tokens, list("h\u00e9".encode()))
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens})["content"], "h\u00e9")
        chat = self.server.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]})
        self.assertEqual(chat["tokens"], list(b"x\n"))
        self.assertEqual(self.server.post("/detokenize", {"tokens": [0xc3]})["content"], "\ufffd")
        self.fails("/detokenize", {"tokens": [256]}, 400, "tokens[0]")

    def test_health_and_ready(self):
        self.assertEqual(self.server.get("/health"), {"status": "ok"})
        self.assertEqual(self.server.get("/ready"), {"status": "ready"})

    def test_page(self):
        status, headers, body = self.server.send("GET", "/")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn("script-src 'sha256-", headers["Content-Security-Policy"])
        for file in (SOURCE / "src/server/web").iterdir():
            if file.name != "index.html":  # which has the others in it
                self.assertIn(file.read_bytes(), body)
        self.assertNotRegex(body, rb"@[a-z]+\.(css|js)@")
        again = self.server.send("GET", "/", headers={"If-None-Match": headers["ETag"]})
        self.assertEqual((again[0], again[2]), (304, b""))
        head = self.server.send("HEAD", "/")
        self.assertEqual((head[0], head[2], head[1]["Content-Length"]), (200, b"", str(len(body))))

    def test_embeddings(self):
        one = self.server.post("/v1/embeddings", {"input": "She was young"})
        vector = one["data"][0]["embedding"]
        self.assertAlmostEqual(sum(v * v for v in vector), 1, places=5)
        self.assertEqual(one["usage"], {"prompt_tokens": 13, "total_tokens": 13})
        many = self.server.post("/v1/embeddings", {"input": ["x" * 1000, "She was young"],
                                                   "encoding_format": "base64"})
        packed = base64.b64decode(many["data"][1]["embedding"])
        self.assertEqual(struct.unpack(f"<{len(packed) // 4}f", packed),
                         tuple(struct.unpack("<f", struct.pack("<f", v))[0] for v in vector))
        last = self.server.post("/v1/embeddings", {"input": list(b"She was young"), "pooling": "last"})
        self.assertNotEqual(last["data"][0]["embedding"], vector)
        self.fails("/v1/embeddings", {"input": []}, 400, "input")

    def test_state_shows_what_runs(self):
        body = {"prompt": "She was ", "max_tokens": 4096, "ignore_eos": True}
        with contextlib.closing(self.server.stream("/v1/completions", body)) as chunks:
            identity = next(chunks)["id"]
            for _ in range(30):
                next(chunks)
            state = self.server.get("/v1/state")
            self.assertEqual(state["object"], "list")
            sequence, = state["data"]
            self.assertEqual((sequence["id"], sequence["choice"], sequence["session"]), (identity, 0, None))
            self.assertGreaterEqual(sequence["tokens"], 8)
            for index, layer in enumerate(sequence["layers"]):
                self.assertEqual(layer["layer"], index)
                self.assertGreater(layer["norm"], 0)
                self.assertEqual(layer["non_finite"], 0)
            self.server.wait_until(lambda: self.server.metrics()["adder_state_norm_max"] > 0)

    def test_metrics_count(self):
        before = self.server.metrics()
        self.complete("metrics please", max_tokens=7)
        self.fails("/v1/completions", {}, 400, "prompt")
        wanted = before["adder_generated_tokens_total"] + 7
        self.server.wait_until(
            lambda: 'adder_http_requests_total{route="/v1/completions",status="400"}' in self.server.metrics()
            and self.server.metrics()["adder_generated_tokens_total"] == wanted)
        after = self.server.metrics()
        self.assertEqual(after["adder_prompt_tokens_total"] - before["adder_prompt_tokens_total"], 14)
        self.assertEqual(after["adder_generated_tokens_total"] - before["adder_generated_tokens_total"], 7)
        self.assertEqual(after["adder_time_to_first_token_seconds_count"]
                         - before["adder_time_to_first_token_seconds_count"], 1)
        self.assertEqual(after["adder_inter_token_seconds_count"] - before["adder_inter_token_seconds_count"], 6)
        self.assertGreaterEqual(after["adder_http_connections"], 1)
        self.assertGreater(after["process_resident_memory_bytes"], 1e6)
        self.assertEqual(after['adder_slots{state="free"}'], 4)


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def serve(self, *arguments):
        return Server(ADDER, "--slots", "2", "--log", "off", "--session-dir", self.folder, *arguments)

    @staticmethod
    def ask(server, prompt, expect=200, **options):
        return server.post("/v1/completions", {"prompt": prompt, "max_tokens": 20, "temperature": 0,
                                               **options}, expect)

    def test_session_goes_on_where_it_was(self):
        with self.serve() as server:
            self.assertEqual(server.post("/v1/sessions", {"id": "a"})["tokens"], 0)
            first = self.ask(server, "She was ", session="a")
            second = self.ask(server, " And then ", session="a")
            text = "She was " + first["choices"][0]["text"] + " And then "
            whole = self.ask(server, text, cache=False)
            self.assertEqual(second["choices"][0]["text"], whole["choices"][0]["text"])
            self.assertEqual(second["usage"]["prompt_tokens"], len(text))
            self.assertEqual(second["usage"]["prompt_tokens_details"]["cached_tokens"], 28)
            info = server.get("/v1/sessions/a")
            self.assertEqual((info["tokens"], info["turns"], info["busy"]), (len(text) + 20, 2, False))

    def test_fork_and_rollback(self):
        with self.serve() as server:
            server.post("/v1/sessions", {"id": "a"})
            first = self.ask(server, "She was ", session="a")["choices"][0]["text"]
            fork = server.post("/v1/sessions/a/fork", {"id": "b"})
            self.assertEqual((fork["parent"], fork["tokens"]), ("a", 28))
            left = self.ask(server, "!", session="a")["choices"][0]["text"]
            right = self.ask(server, "!", session="b")["choices"][0]["text"]
            self.assertEqual(left, right)
            self.assertEqual(server.post("/v1/sessions/a/rollback", {"tokens": 21})["tokens"], 28)
            self.assertEqual(self.ask(server, "!", session="a")["choices"][0]["text"], left)
            self.assertEqual(server.post("/v1/sessions/a/rollback", {"tokens": 41})["tokens"], 8)
            again = self.ask(server, "", session="a")["choices"][0]["text"]
            self.assertEqual(again, first)
            server.post("/v1/sessions/a/rollback", {"tokens": 10_000}, 400)

    def test_saved_sessions_survive_a_restart(self):
        with self.serve() as server:
            server.post("/v1/sessions", {"id": "kept"})
            server.post("/v1/sessions", {"id": "lost"})
            self.ask(server, "She was ", session="kept")
            server.post("/v1/sessions/kept/restore", {}, 404)  # there is nothing yet to restore
            self.assertTrue(server.post("/v1/sessions/kept/save", {})["saved"])
            want = self.ask(server, "!", session="kept")["choices"][0]["text"]
            server.post("/v1/sessions/kept/restore", {})
            self.assertEqual(self.ask(server, "!", session="kept")["choices"][0]["text"], want)
            server.kill()
        with self.serve() as server:
            listed = server.get("/v1/sessions")
            self.assertEqual([(s["id"], s["tokens"], s["saved"]) for s in listed["data"]], [("kept", 28, True)])
            self.assertEqual(self.ask(server, "!", session="kept")["choices"][0]["text"], want)
            self.assertEqual(server.json("DELETE", "/v1/sessions/kept")["deleted"], True)
            server.json("GET", "/v1/sessions/kept", None, 404)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_chat_sends_only_what_is_new(self):
        with self.serve() as server:
            def chat(messages, **options):
                return server.post("/v1/chat/completions", {
                    "messages": messages, "max_tokens": 10, "temperature": 0, **options})
            server.post("/v1/sessions", {"id": "c"})
            first = chat([{"role": "user", "content": "Hi."}], session="c")
            answer = first["choices"][0]["message"]["content"]
            second = chat([{"role": "user", "content": "And?"}], session="c")
            whole = chat([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": answer},
                          {"role": "user", "content": "And?"}])
            self.assertEqual(second["choices"][0]["message"], whole["choices"][0]["message"])
            self.assertEqual(second["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"])

    def test_errors(self):
        with self.serve() as server:
            made = server.post("/v1/sessions", {})
            self.assertTrue(made["id"])
            server.post("/v1/sessions", {"id": made["id"]}, 409)
            server.post("/v1/sessions", {"id": "../x"}, 400)
            server.post("/v1/sessions/none/fork", {}, 404)
            server.post("/v1/sessions/none/rollback", {"tokens": 1}, 404)
            server.json("GET", "/v1/sessions/none", None, 404)
            server.json("DELETE", "/v1/sessions/none", None, 404)
            server.json("PUT", "/v1/sessions/none", {}, 405)
            self.ask(server, "x", 404, session="none")
            # One that is in use: nobody else may touch it.
            chunks = server.stream("/v1/completions", {"prompt": "x", "max_tokens": 4096,
                                                       "ignore_eos": True, "session": made["id"]})
            with contextlib.closing(chunks):
                next(chunks)
                status, headers, _ = server.send("POST", "/v1/completions", {
                    "prompt": "x", "session": made["id"]})
                self.assertEqual((status, headers["Retry-After"]), (429, "1"))
                server.json("DELETE", f"/v1/sessions/{made['id']}", None, 429)
            server.wait_until(server.idle)
        (self.folder / "bad.session").write_bytes(b"not a session")
        with self.serve() as server:
            server.post("/v1/sessions/bad/restore", {}, 400)
            self.ask(server, "x", 400, session="bad")


class Process(unittest.TestCase):
    def test_refuses_a_public_address_without_a_key(self):
        done = subprocess.run([ADDER, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True,
                              encoding="utf-8", timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Aadder: --host 0\.0\.0\.0: [^\n]*--insecure[^\n]*\n\Z")
        with Server(ADDER, "--host", "0.0.0.0", "--insecure", "--log", "off") as server:
            server.get("/health")

    def test_port_in_use_is_one_line(self):
        with Server(ADDER, "--log", "off") as server:
            done = subprocess.run([ADDER, "serve", "--port", str(server.port)], capture_output=True,
                                  encoding="utf-8", timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"\Aadder: [^\n]+\n\Z")

    def test_keys(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "keys").write_text("# comment\n\nfrom-file\r\n")
        env = {**os.environ, "ADDER_API_KEY": "from-environment"}
        with Server(ADDER, "--log", "off", "--api-key", "from-option", "--api-key-file", folder / "keys",
                    env=env) as server:
            server.get("/health")
            server.get("/ready")
            self.assertEqual(server.send("GET", "/")[0], 200)
            error = server.get("/v1/models", 401)["error"]
            self.assertEqual(error["type"], "authentication_error")
            for key in ("from-option", "from-file", "from-environment"):
                headers = {"Authorization": "Bearer " + key}
                server.json("GET", "/v1/models", headers=headers)
                server.json("GET", "/v1/models", headers={"Authorization": "Bearer " + key + "x"}, expect=401)
        # A page must not learn a key from the log or the list of models.
        self.assertNotIn("from-", "".join(server.log))

    def test_log_has_one_line_per_request(self):
        with Server(ADDER, "--log", "json") as server:
            server.get("/health")
            server.send("GET", "/no%22such")
        lines = [json.loads(line) for line in server.log if line.startswith("{")]
        self.assertEqual([(line["method"], line["path"], line["status"]) for line in lines],
                         [("GET", "/health", 200), ("GET", "/no%22such", 404)])

    def test_drain_finishes_what_runs(self):
        with Server(ADDER, "--log", "off", "--slots", "1") as server:
            chunks = server.stream("/v1/completions", {"prompt": "x", "max_tokens": 3000, "ignore_eos": True})
            received = [next(chunks)]
            server.process.send_signal(signal.SIGTERM)
            received += list(chunks)
            self.assertEqual(received[-1], "[DONE]")
            self.assertEqual(len(text_of(received).encode(errors="replace")) >= 2000, True)
            self.assertEqual(server.process.wait(60), 0)

    def test_drain_ends_in_time_and_a_second_signal_at_once(self):
        body = {"prompt": "x", "max_tokens": 4096, "ignore_eos": True}
        for arguments, signals in ((("--drain-seconds", "0.2"), 1), ((), 2)):
            with Server(ADDER, "--log", "off", "--max-tokens", "100000000", *arguments) as server:
                chunks = server.stream("/v1/completions", {**body, "max_tokens": 100000000})
                with contextlib.closing(chunks):
                    next(chunks)
                    began = time.monotonic()
                    for _ in range(signals):
                        server.process.send_signal(signal.SIGTERM)
                        time.sleep(0.3)
                    self.assertEqual(server.process.wait(20), 0)
                    self.assertLess(time.monotonic() - began, 10)

    def test_queue_limit(self):
        with Server(ADDER, "--log", "off", "--slots", "1", "--queue", "1") as server:
            body = {"prompt": "x", "max_tokens": 4096, "ignore_eos": True}
            first = server.stream("/v1/completions", body)
            next(first)
            second = threading.Thread(target=lambda: list(server.stream("/v1/completions", body)))
            second.start()
            server.wait_until(lambda: server.metrics()["adder_queue_length"] == 1
                              and server.metrics()['adder_slots{state="free"}'] == 0)
            status, headers, answer = server.send("POST", "/v1/completions", body)
            self.assertEqual((status, headers["Retry-After"]), (429, "1"))
            self.assertEqual(json.loads(answer)["error"]["type"], "rate_limit_error")
            first.close()
            second.join(60)

    def test_other_models_can_be_served(self):
        # A chat template of its own, and states that fit: nothing here is special to the demo.
        with Server(ADDER, "--log", "off", "--template", "chatml") as server:
            tokens = server.post("/tokenize", {"messages": [{"role": "user", "content": "x"}]})["tokens"]
            self.assertEqual(bytes(tokens), b"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")

    def test_random_bodies_get_an_answer(self):
        rng = random.Random(7)
        with Server(ADDER, "--log", "off", "--slots", "2", "--max-tokens", "8") as server:
            for _ in range(10_000):
                path = rng.choice(["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize",
                                   "/detokenize", "/v1/sessions", "/v1/sessions/a/rollback"])
                status, _, answer = server.send("POST", path, random_body(rng))
                self.assertLess(status, 500, answer)
                json.loads(answer) if not answer.startswith(b"data:") else None
            server.wait_until(server.idle)


FIELDS = ["prompt", "messages", "input", "content", "tokens", "model", "max_tokens", "n", "stream", "stop",
          "temperature", "top_p", "top_k", "seed", "logit_bias", "logprobs", "top_logprobs", "echo", "session",
          "response_format", "grammar", "priority", "timeout_s", "id", "stream_options", "tools"]


def random_value(rng, depth=0):
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 8:
        return rng.choice([None, True, False, 0, 1, -1, 2, 1.5, 1e300, 2**63, 2**64, "", "x", "text", "demo",
                           "\u00e9" * 5, "a" * 3000, "user", "root ::= \"a\"*"])
    if kind < 10:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 10:
        return {"role": "user", "content": random_value(rng, depth + 1)}
    return {rng.choice(["type", "text", "65", "include_usage", "json_schema", "schema"]): random_value(rng, depth + 1)
            for _ in range(rng.randrange(3))}


def random_body(rng):
    body = {name: random_value(rng) for name in rng.sample(FIELDS, rng.randrange(5))}
    if rng.random() < 0.5:
        body.update(prompt="x", messages=[{"role": "user", "content": "x"}], input="x", content="x")
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < 0.3:
        cut = rng.randrange(len(raw) + 1)
        raw = raw[:cut] + bytes(rng.randrange(256) for _ in range(rng.randrange(4))) + raw[cut + rng.randrange(3):]
    return raw


if __name__ == "__main__":
    ADDER, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

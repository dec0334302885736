"""The official openai package and curl against a running server.

Usage: clients_test.py PATH_TO_ADDER [unittest options], with the packages of requirements.txt
"""

import asyncio
import json
import math
import subprocess
import sys
import unittest

import openai

from server_under_test import Server

ADDER = None
KEY = "a-key-for-tests"
PROMPT = "The morning after the ball"
MESSAGES = [{"role": "user", "content": PROMPT}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["python", "adder", "mamba"]},
        "venomous": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["small", "green"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "kind", "venomous", "tags"],
    "additionalProperties": False,
}


def client_of(server, kind=openai.OpenAI, **options):
    options.setdefault("api_key", server.key)
    return kind(base_url=server.url + "/v1", max_retries=0, timeout=60, **options)


class OpenAiPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(ADDER, "--slots", 16, "--max-tokens", 1_000_000, key=KEY)
        cls.addClassCleanup(cls.server.stop)
        cls.client = client_of(cls.server)
        cls.addClassCleanup(cls.client.close)
        cls.model = cls.client.models.list().data[0].id

    def complete(self, prompt=PROMPT, **options):
        options = {"max_tokens": 40, "seed": 7, **options}
        return self.client.completions.create(model=self.model, prompt=prompt, **options)

    def chat(self, messages=MESSAGES, **options):
        options = {"max_tokens": 40, "seed": 7, **options}
        return self.client.chat.completions.create(model=self.model, messages=messages, **options)

    # models

    def test_lists_its_one_model(self):
        models = self.client.models.list().data
        self.assertEqual(len(models), 1)
        self.assertEqual(models[0].object, "model")
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_unknown_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(model="no-such-model", prompt="a")
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertIn("no-such-model", str(caught.exception))

    # completions

    def test_completion(self):
        answer = self.complete()
        choice = answer.choices[0]
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(choice.finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 40)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 40)
        self.assertGreaterEqual(answer.usage.prompt_tokens, len(PROMPT))  # a token is a byte
        self.assertGreater(len(choice.text), 10)

    def test_streamed_completion_is_the_same_text_in_pieces(self):
        pieces, ends = [], []
        for chunk in self.complete(stream=True):
            self.assertIsNone(getattr(chunk, "usage", None))
            pieces.append(chunk.choices[0].text)
            ends.append(chunk.choices[0].finish_reason)
        self.assertEqual("".join(pieces), self.complete().choices[0].text)
        self.assertGreater(len([piece for piece in pieces if piece]), 10)
        self.assertEqual([end for end in ends if end], ["length"])
        self.assertEqual(ends[-1], "length")

    def test_usage_comes_in_a_last_chunk_when_asked_for(self):
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual([chunk.usage for chunk in chunks[:-1]], [None] * (len(chunks) - 1))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, self.complete().usage.model_copy(
            update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}))
        self.assertGreater(chunks[-1].timings["decode_tok_s"], 0)

    def test_the_second_time_the_prompt_is_cached(self):
        prompt = "Once, and never before in these tests, " * 10
        first, second = self.complete(prompt), self.complete(prompt)
        self.assertEqual(first.choices[0].text, second.choices[0].text)
        self.assertEqual(first.usage.prompt_tokens_details.cached_tokens, 0)
        # The demo model is a Mamba-2: its states are exact at multiples of 256 tokens.
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens,
                           second.usage.prompt_tokens - 256)

    def test_same_seed_same_text(self):
        texts = [self.complete(seed=seed, temperature=1.0).choices[0].text for seed in (3, 3, 4)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_without_a_seed_texts_differ(self):
        texts = {self.complete(seed=None, temperature=1.5).choices[0].text for _ in range(3)}
        self.assertGreater(len(texts), 1)

    def test_several_answers(self):
        answer = self.complete(n=4, temperature=1.0)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertGreater(len({choice.text for choice in answer.choices}), 1)
        self.assertEqual(answer.usage.completion_tokens, 160)
        streamed = [""] * 4
        for chunk in self.complete(n=4, temperature=1.0, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        self.assertEqual(streamed, [choice.text for choice in answer.choices])

    def test_several_prompts(self):
        prompts = ["She was", "He went"]
        answer = self.complete(prompts, temperature=0)
        alone = [self.complete(prompt, temperature=0).choices[0].text for prompt in prompts]
        self.assertEqual([choice.text for choice in answer.choices], alone)

    def test_stops_before_a_stop_string(self):
        whole = self.complete(temperature=0).choices[0].text
        stop = whole[12:15]
        answer = self.complete(temperature=0, stop=[stop]).choices[0]
        self.assertEqual(answer.finish_reason, "stop")
        self.assertEqual(answer.text, whole[:whole.index(stop)])

    def test_logprobs_of_a_completion(self):
        answer = self.complete(logprobs=3, temperature=0, max_tokens=8).choices[0]
        logprobs = answer.logprobs
        self.assertEqual("".join(logprobs.tokens), answer.text)
        self.assertEqual(len(logprobs.token_logprobs), 8)
        for value, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertLessEqual(value, 0)
            self.assertGreaterEqual(value, max(top.values()) - 1e-6)  # greedy
            self.assertIn(len(top), (3, 4))

    # chat

    def test_chat(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn(answer.choices[0].finish_reason, ("length", "stop"))
        self.assertEqual(self.chat(max_tokens=None, max_completion_tokens=40).choices[0].message.content,
                         answer.choices[0].message.content)

    def test_streamed_chat_is_the_same_text_in_pieces(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        whole = self.chat()
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_logprobs_of_a_chat(self):
        choice = self.chat(logprobs=True, top_logprobs=2, max_tokens=6, temperature=0).choices[0]
        tokens = choice.logprobs.content
        self.assertEqual(bytes(byte for token in tokens for byte in token.bytes).decode(errors="ignore"),
                         choice.message.content)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)  # greedy
            self.assertTrue(math.isfinite(token.logprob) and token.logprob <= 0)

    def test_json_schema_is_kept(self):
        form = {"type": "json_schema", "json_schema": {"name": "snake", "schema": SCHEMA, "strict": True}}
        for seed in range(5):
            choice = self.chat(response_format=form, max_tokens=300, seed=seed, temperature=1.0).choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            snake = json.loads(choice.message.content)
            self.assertEqual(set(snake), set(SCHEMA["required"]))
            self.assertLessEqual(len(snake["name"]), 12)
            self.assertIn(snake["kind"], SCHEMA["properties"]["kind"]["enum"])
            self.assertIsInstance(snake["venomous"], bool)
            self.assertTrue(1 <= len(snake["tags"]) <= 3)
            self.assertLessEqual(set(snake["tags"]), {"small", "green"})

    def test_json_object_parses_or_was_cut_off(self):
        for seed in range(5):
            choice = self.chat(response_format={"type": "json_object"}, max_tokens=200, seed=seed).choices[0]
            self.assertTrue(choice.message.content.lstrip().startswith("{"))
            if choice.finish_reason == "stop":
                self.assertIsInstance(json.loads(choice.message.content), dict)

    def test_a_grammar_as_an_extra_field(self):
        text = self.complete(extra_body={"grammar": 'root ::= "yes" | "no"'}).choices[0].text
        self.assertIn(text, ("yes", "no"))

    def test_sessions_through_extra_fields(self):
        self.server.post("/v1/sessions", {"id": "clients"})
        for turns in (1, 2):
            answer = self.complete("And then", extra_body={"session": "clients"})
            session = self.server.get("/v1/sessions/clients")
            self.assertEqual(session["turns"], turns)
            self.assertGreaterEqual(session["tokens"],
                                    answer.usage.prompt_tokens + answer.usage.completion_tokens - 1)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, 30)

    # embeddings

    def test_embeddings(self):
        # Unless told otherwise, the package asks for base64 and decodes it.
        implicit = self.client.embeddings.create(model=self.model, input=["one text", "another"])
        explicit = self.client.embeddings.create(model=self.model, input=["one text", "another"],
                                                 encoding_format="float")
        self.assertEqual([entry.index for entry in implicit.data], [0, 1])
        for a, b in zip(implicit.data, explicit.data):
            self.assertGreater(len(a.embedding), 16)
            self.assertEqual(len(a.embedding), len(b.embedding))
            for x, y in zip(a.embedding, b.embedding):
                # Both are the same float32; decimal text may round it.
                self.assertAlmostEqual(x, y, delta=1e-6 * max(1, abs(x)))
        self.assertNotEqual(implicit.data[0].embedding, implicit.data[1].embedding)
        self.assertGreater(implicit.usage.prompt_tokens, 0)

    # what is refused

    def test_tools_are_refused_clearly(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tools=[tool])
        self.assertEqual(caught.exception.param, "tools")
        self.assertIn("not supported", str(caught.exception))

    def test_wrong_values_are_bad_requests(self):
        for options, param in (({"temperature": 9}, "temperature"), ({"max_tokens": -1}, "max_tokens"),
                               ({"n": 0}, "n"), ({"stop": ["a"] * 9}, "stop")):
            with self.subTest(options), self.assertRaises(openai.BadRequestError) as caught:
                self.complete(**options)
            self.assertEqual(caught.exception.param, param)

    def test_a_wrong_key_is_an_authentication_error(self):
        for key in ("wrong", self.server.key + "x", self.server.key[:-1]):
            with client_of(self.server, api_key=key) as client:
                with self.assertRaises(openai.AuthenticationError):
                    client.models.list()
                with self.assertRaises(openai.AuthenticationError):
                    client.completions.create(model=self.model, prompt="a")

    # streams

    def test_closing_a_stream_frees_its_slot(self):
        self.server.wait_until_idle()
        cancelled = self.server.metrics()["adder_generations_total{end=\"cancelled\"}"]
        stream = self.complete(stream=True, max_tokens=1_000_000, extra_body={"ignore_eos": True})
        for _ in range(3):
            next(stream)
        self.server.wait_for("adder_running_requests", 1, 2)
        stream.close()
        self.server.wait_for("adder_generations_total{end=\"cancelled\"}", cancelled + 1, 2)
        self.server.wait_for("adder_running_requests", 0, 2)
        self.assertEqual(self.server.metrics()["adder_slots{state=\"free\"}"], 16)

    def test_sixteen_streams_at_once_each_equal_to_their_solo_run(self):
        requests = [dict(prompt=f"{PROMPT} number {i}", max_tokens=30 + 5 * i, seed=i, temperature=0.9)
                    for i in range(16)]
        alone = [self.complete(extra_body={"cache": False}, **request).choices[0].text
                 for request in requests]

        async def run():
            async with client_of(self.server, openai.AsyncOpenAI) as client:
                async def one(request):
                    text = ""
                    async for chunk in await client.completions.create(model=self.model, stream=True,
                                                                       **request):
                        text += chunk.choices[0].text
                    return text
                return await asyncio.gather(*map(one, requests))

        self.assertEqual(asyncio.run(run()), alone)


class Curl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(ADDER)
        cls.addClassCleanup(cls.server.stop)

    def curl(self, path, body=None, *options):
        """(status, body, content type)"""
        arguments = ["curl", "-sS", "-N", "--max-time", "60", *options, self.server.url + path,
                     "-w", "\n%{http_code} %{content_type}"]
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            arguments += ["-H", "Content-Type: application/json", "-d", text]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        text, _, last = done.stdout.rpartition("\n")
        status, _, kind = last.partition(" ")
        return int(status), text, kind

    def test_plain_request(self):
        status, text, kind = self.curl("/v1/completions", {"prompt": PROMPT, "max_tokens": 5})
        self.assertEqual((status, kind.split(";")[0]), (200, "application/json"))
        self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 5)

    def test_stream_is_server_sent_events(self):
        status, text, kind = self.curl("/v1/chat/completions",
                                       {"messages": MESSAGES, "max_tokens": 5, "stream": True})
        self.assertEqual((status, kind.split(";")[0]), (200, "text/event-stream"))
        events = text.strip().split("\n\n")
        self.assertEqual(events[-1], "data: [DONE]")
        for event in events[:-1]:
            self.assertEqual(json.loads(event.removeprefix("data: "))["object"], "chat.completion.chunk")

    def test_errors_have_the_shape_of_openai(self):
        for path, body, expected in (("/v1/completions", "{not json", 400), ("/v1/completions", "[]", 400),
                                     ("/v1/completions", {}, 400), ("/v1/nothing", None, 404),
                                     ("/v1/chat/completions", None, 405)):
            with self.subTest(path=path, body=body):
                status, text, _ = self.curl(path, body)
                self.assertEqual(status, expected, text)
                self.assertEqual(set(json.loads(text)["error"]), {"message", "type", "param", "code"})

    def test_health_and_metrics(self):
        self.assertEqual(self.curl("/health")[0], 200)
        self.assertEqual(self.curl("/ready")[0], 200)
        status, text, kind = self.curl("/metrics")
        self.assertEqual((status, kind.split(";")[0]), (200, "text/plain"))
        self.assertIn("adder_generated_tokens_total", text)

    def test_tokens_there_and_back(self):
        text = "naïve, 蛇"
        tokens = json.loads(self.curl("/tokenize", {"content": text})[1])["tokens"]
        self.assertEqual(json.loads(self.curl("/detokenize", {"tokens": tokens})[1])["content"], text)


if __name__ == "__main__":
    ADDER = sys.argv.pop(1)
    unittest.main(verbosity=2)

"""The server's page in a real, headless Chromium.

Usage: web_test.py PATH_TO_ADDER [unittest options], with Debian's python3-selenium, chromium and
chromium-driver
"""

import json
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service

from server_under_test import Server

ADDER = None
VIEWS = ("write", "sessions", "settings", "state")
TEXT = "The morning after the ball"
LONG = 1_000_000  # tokens: longer than any test takes

# Text nodes that can be seen, with less contrast than WCAG's 4.5 : 1 to what is behind them.
LOW_CONTRAST = """
const parse = (css) => { const v = css.match(/[\\d.]+/g).map(Number); return [v[0], v[1], v[2], v[3] ?? 1]; };
const over = (top, below) => below.map((v, i) => i < 3 ? top[i] * top[3] + v * (1 - top[3]) : 1);
const luminance = (c) => [.2126, .7152, .0722].reduce((sum, weight, i) => {
  const v = c[i] / 255;
  return sum + weight * (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
}, 0);
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
const bad = [];
let seen = 0;
const check = (node, color, text) => {
  const back = behind(node), front = over(parse(color), back);
  const [a, b] = [luminance(back), luminance(front)].sort((x, y) => y - x);
  seen += 1;
  if ((a + .05) / (b + .05) < 4.5) bad.push(`${((a + .05) / (b + .05)).toFixed(2)} ${node.tagName}: ${text}`);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim(), node = walker.currentNode.parentElement;
  if (!text || !node.checkVisibility() || ["SCRIPT", "STYLE", "TITLE"].includes(node.tagName.toUpperCase())) continue;
  const style = getComputedStyle(node);
  check(node, node instanceof SVGElement ? style.fill : style.color, text.slice(0, 40));
}
for (const field of document.querySelectorAll("input, textarea")) {
  if (!field.checkVisibility()) continue;
  check(field, getComputedStyle(field).color, field.name + " value");
  check(field, getComputedStyle(field, "::placeholder").color, field.name + " placeholder");
}
return [seen, bad];
"""

# What sticks out to the right, except inside of what scrolls by itself.
TOO_WIDE = """
const out = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) out.push(`page: ${document.documentElement.scrollWidth}`);
for (const node of document.querySelectorAll("body *")) {
  if (!node.checkVisibility() || node.closest(".scroll *") || node.closest("svg *")) continue;
  const box = node.getBoundingClientRect();
  if (box.width && box.right > width + 1) out.push(`${node.tagName} ${node.id}.${node.className}: ${box.right}`);
}
for (const node of document.querySelectorAll("main, aside, #log")) {
  if (node.scrollWidth > node.clientWidth + 1) out.push(`${node.id} scrolls sideways`);
}
return out;
"""

# Every length that the newest answer had, as the browser saw it.
WATCH_ANSWER = """
window.lengths = [];
new MutationObserver(() => {
  const text = document.querySelector("#log .turn:last-child [aria-live]");
  if (text && window.lengths.at(-1) !== text.textContent.length) window.lengths.push(text.textContent.length);
}).observe(document.getElementById("log"), {subtree: true, childList: true, characterData: true});
"""

# Answers the next generation with these events instead of asking the server.
ANSWER_WITH = """
const [events, status, headers] = arguments, real = window.fetch;
window.fetch = (path, options) => {
  if (!/completions$/.test(path)) return real(path, options);
  window.fetch = real;
  return Promise.resolve(new Response(events, {status, headers}));
};
"""


def event(value):
    return f"data: {json.dumps(value)}\n\n"


def chat_chunk(text):
    return event({"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


# Nothing but max_tokens ends an answer.
IGNORE_EOS = """
const real = window.fetch;
window.fetch = (path, options) => real(path, !/completions$/.test(path) ? options :
  {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})});
"""


class Page(unittest.TestCase):
    """One browser and one server for all tests of a class; storages are emptied between them."""
    options = ()
    key = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(ADDER, "--max-tokens", LONG, *cls.options, key=cls.key)
        cls.addClassCleanup(cls.server.stop)
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--window-size=1280,900", "--disable-background-networking", "--lang=en"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        cls.addClassCleanup(cls.driver.quit)

    def setUp(self):
        self.resize(1280, 900)
        self.media()
        self.driver.get(self.server.url + "/health")
        self.run_js("localStorage.clear(); sessionStorage.clear();")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.expected_errors = ()
        self.open()
        self.addCleanup(self.check_logs)

    def check_logs(self):
        """No error on the console but those that a test wants; no request to anywhere else."""
        for entry in self.driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                self.assertTrue(any(part in entry["message"] for part in self.expected_errors), entry)
        asked = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        self.assertTrue(asked)
        for url in asked:
            self.assertTrue(url.startswith((self.server.url + "/", "data:")), url)

    # driving

    def open(self):
        self.driver.get(self.server.url + "/")
        self.wait(lambda: self.text("#status") != "connecting", "the page connects")
        sessions = len(self.server.get("/v1/sessions")["data"]) if self.text("#status") == "ready" else 0
        self.wait(lambda: len(self.all(".session")) == 1 + sessions, "the list of sessions")

    def run_js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """As in the document, visible or not; "" where there is no such element."""
        return self.run_js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait(self, condition, what, seconds=20):
        end = time.monotonic() + seconds
        while not (value := condition()):
            self.assertLess(time.monotonic(), end, f"waited for: {what}")
            time.sleep(0.02)
        return value

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def media(self, **features):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()]})

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def chord(self, key, modifier=Keys.CONTROL):
        webdriver.ActionChains(self.driver).key_down(modifier).send_keys(key).key_up(modifier).perform()

    def set_option(self, name, value):
        field = self.find(f"#options [name={name}]")
        self.run_js("arguments[0].value = arguments[1];"
                    "arguments[0].dispatchEvent(new Event('change', {bubbles: true}));", field, str(value))

    def send(self, text):
        field = self.find("#prompt")
        field.clear()
        field.send_keys(text)
        self.chord(Keys.ENTER)

    def idle(self):
        return self.text("#status") != "writing" and self.find("#send").is_displayed()

    def ask(self, text, tokens=40):
        """Sends it and returns the answer's text."""
        self.set_option("max_tokens", tokens)
        before = len(self.all(".turn"))
        self.send(text)
        self.wait(lambda: len(self.all(".turn")) > before and self.idle(), "an answer")
        return self.answer()

    def begin_long(self):
        """Begins an answer that only stopping ends, and waits for some of its text."""
        self.run_js(IGNORE_EOS)
        self.run_js("document.querySelector('[value=completion]').click()")
        self.set_option("max_tokens", LONG)
        self.send(TEXT)
        self.wait(lambda: len(self.answer()) > len(TEXT) + 20, "some text")

    def answer(self):
        """The newest answer's text, with its prompt in completion mode."""
        return self.text(".turn:last-child > .text:not(.said)")

    def figure(self, name):
        """A number of the newest answer: figure("cached")"""
        for row in self.all(".turn:last-child .figures div"):
            label, value = row.find_element(By.TAG_NAME, "dt").text, row.find_element(By.TAG_NAME, "dd").text
            if label == name:
                return float("".join(c for c in value if c.isdigit() or c == "."))
        self.fail(f"no figure '{name}': {self.text('.turn:last-child .figures')}")


class Writing(Page):
    options = ("--slots", "2")

    def test_a_message_by_keyboard_alone(self):
        self.run_js(WATCH_ANSWER)
        self.press(Keys.TAB)  # the skip link
        self.assertIn("Skip", self.run_js("return document.activeElement.textContent"))
        self.press(Keys.ENTER)
        self.assertEqual(self.run_js("return document.activeElement.id"), "prompt")
        self.set_option("max_tokens", 512)
        self.press(TEXT)
        self.chord(Keys.ENTER)
        self.wait(lambda: self.all(".turn") and self.idle(), "an answer")
        answer = self.answer()
        self.assertGreater(len(answer), 200)
        self.assertEqual(self.text(".said"), TEXT)
        lengths = self.run_js("return window.lengths")
        self.assertGreater(len(lengths), 3, "the text came in one piece")
        self.assertEqual(lengths, sorted(lengths))
        self.assertEqual(self.figure("answer"), 512)
        for name in ("speed", "first after", "prompt"):
            self.assertGreater(self.figure(name), 0)
        self.assertEqual(self.run_js("return document.activeElement.id"), "prompt")
        self.assertFalse(self.all("[aria-busy]"))

    def test_a_chat_goes_on_and_its_beginning_is_cached(self):
        first = self.ask(TEXT, 300)
        self.assertNotEqual(self.ask("And then?", 300), first)
        self.assertGreater(self.figure("prompt"), 300)
        # Of a Mamba-2, such as the demo model, states of prompts are kept at multiples of 256 tokens.
        self.ask("And then?")
        self.assertGreaterEqual(self.figure("cached"), 256)
        self.open()  # the texts survive a reload
        self.assertEqual(len(self.all(".turn")), 3)
        self.find("#clear").click()
        self.assertFalse(self.all(".turn"))

    def test_completion_mode(self):
        self.run_js("document.querySelector('[value=chat]').focus()")
        self.press(Keys.ARROW_RIGHT)
        self.assertEqual(self.find("label[for=prompt]").text, "Text to continue")
        self.assertTrue(self.ask(TEXT).startswith(TEXT))
        self.find(".turn footer button:nth-child(2)").click()
        self.assertEqual(self.find("#prompt").get_attribute("value"), self.text(".turn > .text"))

    def test_escape_stops(self):
        self.begin_long()
        self.assertTrue(self.find("#stop").is_displayed())
        self.press(Keys.ESCAPE)
        self.wait(self.idle, "the end")
        self.assertIn("by you", self.text(".figures"))
        length = len(self.answer())
        self.server.wait_until_idle(2)
        self.assertEqual(len(self.answer()), length)
        self.assertTrue(self.ask("Go on"))

    def test_the_stop_button_stops(self):
        self.run_js(IGNORE_EOS)
        self.set_option("max_tokens", LONG)
        self.find("#prompt").send_keys(TEXT)
        self.find("#send").click()
        self.wait(self.answer, "some text")
        self.assertEqual(self.run_js("return document.activeElement.id"), "stop")
        self.find("#stop").click()
        self.wait(self.idle, "the end")
        self.assertIn("by you", self.text(".figures"))
        self.assertEqual(self.run_js("return document.activeElement.id"), "send")

    def test_settings_reach_the_server(self):
        self.set_option("seed", 5)
        self.set_option("temperature", 1)
        texts = []
        for _ in range(2):
            texts.append(self.ask(TEXT))
            self.find("#clear").click()
        self.assertEqual(texts[0], texts[1])
        self.set_option("stop", texts[0][8:11])
        self.assertEqual(self.ask(TEXT), texts[0][:texts[0].index(texts[0][8:11])])
        self.open()
        self.assertEqual(self.find("[name=seed]").get_attribute("value"), "5")

    def test_an_answer_keeps_to_what_is_asked(self):
        self.set_option("format", "grammar")
        self.set_option("rules", 'root ::= "yes" | "no"')
        self.assertIn(self.ask(TEXT), ("yes", "no"))
        self.find("#clear").click()
        self.set_option("format", "schema")
        self.send(TEXT)
        self.wait(lambda: self.find("#notice").is_displayed(), "a notice")
        self.assertIn("not JSON", self.text("#notice"))
        self.set_option("rules", json.dumps({"enum": ["left", "right"]}))
        self.assertIn(self.ask(TEXT), ('"left"', '"right"'))

    def test_a_wrong_setting_is_pointed_at(self):
        self.set_option("temperature", 7)
        self.send(TEXT)
        self.assertFalse(self.all(".turn"))
        self.assertEqual(self.run_js("return document.activeElement.name"), "temperature")

    def test_markup_stays_text(self):
        attack = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'><b>bold</b>"
        self.run_js(ANSWER_WITH, chat_chunk(attack[:20]) + chat_chunk(attack[20:]) + "data: [DONE]\n\n", 200, {})
        self.assertEqual(self.ask(attack), attack)
        self.assertEqual(self.text(".said"), attack)
        self.open()
        self.assertEqual(self.answer(), attack)
        self.assertFalse(self.all("#log script, #log img, #log b"))
        self.assertIsNone(self.run_js("return window.hit ?? null"))

    def test_an_error_in_mid_stream_keeps_what_came(self):
        self.run_js(ANSWER_WITH, chat_chunk("half a") + event(
            {"error": {"message": "the state is not finite", "type": "server_error", "param": None, "code": None}}),
            200, {})
        self.assertEqual(self.ask(TEXT), "half a")
        self.assertEqual(self.text(".turn .problem"), "the state is not finite")
        self.assertIn("by an error", self.text(".figures"))

    def test_a_busy_server_says_when_to_come_back(self):
        self.run_js(ANSWER_WITH, json.dumps({"error": {"message": "256 requests wait."}}), 429, {"Retry-After": "3"})
        self.send(TEXT)
        self.wait(lambda: "Try again in 3 seconds" in self.text("#notice"), "the message")
        self.assertEqual(self.find("#prompt").get_attribute("value"), TEXT)
        self.assertFalse(self.all(".turn"))

    def test_the_plot_has_points_and_a_table(self):
        self.assertIn("while an answer is written", self.text("#plot-note"))
        self.begin_long()
        self.wait(lambda: self.run_js("return Math.max(0, ...[...document.querySelectorAll('#plot polyline')]"
                                      ".map((line) => line.points.length))") >= 3, "three points of a line")
        layers = len(self.all("#plot polyline"))
        self.assertGreater(layers, 1)
        # One script reads the whole table: while the answer is written, its cells are replaced.
        rows = self.run_js("return [...document.querySelectorAll('#rows tr')]"
                           ".map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))")
        self.assertEqual(len(rows), layers)
        for cell in rows[0][:3]:
            self.assertGreater(float(cell), 0)
        self.assertIn(f"{layers} layers", self.find("#plot").get_attribute("aria-label"))
        self.press(Keys.ESCAPE)
        self.wait(self.idle, "the end")
        self.assertEqual(len(self.all("#plot polyline")), layers)


class Looks(Page):
    def fill(self):
        """Something in every corner, with words that no line can hold."""
        self.server.send("DELETE", "/v1/sessions/long-" + "x" * 50)
        self.server.post("/v1/sessions", {"id": "long-" + "x" * 50})
        self.open()
        self.run_js("document.querySelectorAll('.session')[1].click()")
        self.ask("w" * 300, 200)
        self.run_js("document.querySelector('[value=completion]').click()")
        self.ask("W" * 300, 1500)

    def show(self, view):
        self.run_js("document.querySelector(`[data-show=${arguments[0]}]`).click()", view)

    def test_nothing_sticks_out_on_a_phone(self):
        self.resize(360, 640)
        self.fill()
        for width in (360, 320, 768, 1100, 1280):
            self.resize(width, 640)
            for view in VIEWS:
                with self.subTest(width=width, view=view):
                    self.show(view)
                    self.assertEqual(self.run_js(TOO_WIDE), [])

    def test_a_phone_shows_one_view_at_a_time(self):
        self.resize(360, 640)
        for view in VIEWS:
            self.find(f"[data-show={view}]").click()
            for other in VIEWS:
                self.assertEqual(self.find("#" + other).is_displayed(), other == view)
        self.press(Keys.ESCAPE)
        self.assertTrue(self.find("#prompt").is_displayed())
        self.assertTrue(self.ask(TEXT))

    def test_contrast_of_all_text(self):
        self.fill()
        self.run_js("document.querySelector('#new-session').click()")
        dialog_open = True
        for scheme in ("light", "dark"):
            self.media(prefers_color_scheme=scheme)
            with self.subTest(scheme=scheme, dialog=dialog_open):
                seen, bad = self.run_js(LOW_CONTRAST)
                self.assertGreater(seen, 60)
                self.assertEqual(bad, [])
        self.press(Keys.ESCAPE)
        self.run_js(ANSWER_WITH, "{}", 500, {})
        self.send("x")
        self.wait(lambda: "500" in self.text("#notice"), "an error")
        for scheme in ("light", "dark"):
            self.media(prefers_color_scheme=scheme)
            with self.subTest(scheme=scheme, error="shown"):
                self.assertEqual(self.run_js(LOW_CONTRAST)[1], [])
        colours = set()
        for scheme in ("light", "dark"):
            self.media(prefers_color_scheme=scheme)
            colours.add(self.run_js("return getComputedStyle(document.documentElement).backgroundColor"))
        self.assertEqual(len(colours), 2)

    def test_less_motion_when_asked_for(self):
        for wish, moving in (("no-preference", True), ("reduce", False)):
            self.media(prefers_reduced_motion=wish)
            self.begin_long()
            self.assertTrue(self.all("[aria-busy=true]"))
            self.assertEqual(self.run_js("return document.getAnimations({subtree: true}).length > 0"), moving)
            self.press(Keys.ESCAPE)
            self.wait(self.idle, "the end")

    def test_everything_has_a_name_and_shows_its_focus(self):
        self.fill()
        reached = []
        self.run_js("document.querySelector('.skip').focus()")
        for _ in range(80):
            self.press(Keys.TAB)
            at = self.run_js("""
                const node = document.activeElement, style = getComputedStyle(node);
                if (node === document.body) return null;
                const shown = node.closest("label:has(input[type=radio])") ?? node;
                const name = node.ariaLabel || node.labels?.[0]?.textContent || node.textContent ||
                             document.getElementById(node.getAttribute("aria-labelledby"))?.textContent;
                return [node.id || node.name || node.textContent, name.trim(),
                        getComputedStyle(shown).outlineStyle, node.checkVisibility()];""")
            if at is None:
                break
            reached.append(at[0])
            self.assertTrue(at[1], at)
            self.assertEqual(at[2], "solid", at)
            self.assertTrue(at[3], at)
        for wanted in ("prompt", "send", "new-session", "temperature", "system", "key", "values", "Fork", "mode"):
            self.assertIn(wanted, reached)
        self.assertEqual(self.run_js("return document.querySelectorAll('main, header, nav, aside').length"), 6)
        self.assertEqual(self.run_js("""
            return [...document.querySelectorAll("input, textarea")].filter((field) => !field.labels.length).length"""), 0)


class Sessions(Page):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.options = ("--session-dir", folder.name)
        super().setUpClass()

    def setUp(self):
        super().setUp()
        for session in self.server.get("/v1/sessions")["data"]:
            self.server.send("DELETE", "/v1/sessions/" + session["id"])
        self.open()

    def info(self, name):
        return self.server.get("/v1/sessions/" + name)

    def dialog(self, value=""):
        """Fills in the open dialog by keyboard and waits until it has done its work."""
        self.wait(lambda: self.find("#ask").is_displayed(), "the dialog")
        self.press(value, Keys.ENTER) if value else self.press(Keys.ENTER)
        self.wait(lambda: not self.find("#ask").is_displayed(), "the dialog's end")

    def create(self, name):
        self.find("#new-session").click()
        self.dialog(name)
        self.wait(lambda: self.text("#where") == f"session {name}", "the new session")

    def act(self, name):
        self.find(f".actions [data-key='{name}']").click()

    def test_a_conversation_is_continued_forked_and_rolled_back(self):
        self.create("tale")
        first = self.ask(TEXT)
        after_one = self.info("tale")["tokens"]
        self.assertGreater(after_one, len(TEXT) + 40)
        self.ask("And then?")
        after_two = self.info("tale")["tokens"]
        self.assertEqual(self.info("tale")["turns"], 2)
        self.assertGreaterEqual(self.figure("cached"), after_one - 1)

        self.act("Fork")
        self.dialog("other")
        self.wait(lambda: self.text("#where") == "session other", "the fork")
        self.assertEqual(self.info("other")["parent"], "tale")
        self.assertEqual(self.info("other")["tokens"], after_two)
        self.assertEqual(len(self.all(".turn")), 2)  # the fork has the text too
        inside = self.find("#tree ul[aria-label='Forks of tale'] .session")
        self.assertIn("other", inside.text)

        # The second answer's own button: back to where the first one ended.
        self.all(".turn:last-of-type footer button")[1].click()
        self.wait(lambda: self.info("other")["tokens"] == after_one, "the roll-back")
        self.wait(lambda: len(self.all(".turn")) == 1, "the turn's end")
        self.assertEqual(self.find("#prompt").get_attribute("value"), "And then?")
        self.assertEqual(self.info("tale")["tokens"], after_two)

        # Into the middle of the first answer.
        self.act("Roll back")
        self.dialog("10")
        self.wait(lambda: self.info("other")["tokens"] == after_one - 10, "the roll-back")
        self.wait(lambda: "no longer holds the last 10 tokens" in self.text(".turn .note"), "the note")
        self.assertEqual(self.answer(), first)

        # Back to the parent, whose texts are still there.
        self.run_js("document.querySelectorAll('.session')[1].click()")
        self.assertEqual(self.text("#where"), "session tale")
        self.assertEqual(len(self.all(".turn")), 2)

    def test_sessions_are_saved_restored_and_deleted(self):
        self.create("kept")
        self.ask(TEXT)
        tokens = self.info("kept")["tokens"]
        self.act("Save")
        self.wait(lambda: "saved" in self.text(".session[aria-current]"), "the mark")
        self.assertTrue(self.info("kept")["saved"])
        self.ask("More")
        self.assertFalse(self.info("kept")["saved"])
        self.act("Restore")
        self.wait(lambda: self.info("kept")["tokens"] == tokens, "the old state")
        self.wait(lambda: len(self.all(".turn")) == 1, "the old text")
        self.act("Delete")
        self.wait(lambda: self.find("#ask").is_displayed(), "the question")
        self.press(Keys.ENTER)  # the focus is on Cancel
        self.wait(lambda: not self.find("#ask").is_displayed(), "the dialog's end")
        self.assertEqual(self.info("kept")["tokens"], tokens)
        self.act("Delete")
        self.find("#ask-yes").click()
        self.wait(lambda: self.text("#where") == "", "the end")
        self.assertEqual(self.server.get("/v1/sessions")["data"], [])

    def test_stopping_leaves_a_session_usable(self):
        self.create("stopped")
        self.begin_long()
        self.press(Keys.ESCAPE)
        self.wait(self.idle, "the end")
        self.assertFalse(self.info("stopped")["busy"])
        self.assertTrue(self.ask("Go on"))
        self.assertEqual(len(self.all(".turn")), 2)

    def test_a_name_that_is_taken_is_refused_clearly(self):
        self.expected_errors = ("409",)
        self.create("once")
        self.find("#new-session").click()
        self.dialog("once")
        self.wait(lambda: "once" in self.text("#sessions-problem"), "the message")

    def test_a_session_of_elsewhere_says_that_its_text_is_missing(self):
        self.server.post("/v1/sessions", {"id": "far"})
        self.server.post("/v1/completions", {"prompt": TEXT, "session": "far", "max_tokens": 4})
        self.open()
        self.run_js("document.querySelectorAll('.session')[1].click()")
        self.assertIn("whose text this browser does not have", self.text("#log .note"))
        self.server.send("DELETE", "/v1/sessions/far")
        self.open()
        self.wait(lambda: "far is gone" in self.text("#sessions-problem"), "the message")


class WithKey(Page):
    key = "only-for-tests"

    def test_the_key_is_asked_for_used_and_forgotten(self):
        self.expected_errors = ("401",)
        self.assertEqual(self.text("#status"), "key needed")
        self.find("#notice button").click()
        self.assertEqual(self.run_js("return document.activeElement.id"), "key")
        self.press("wrong", Keys.TAB)
        self.wait(lambda: "does not accept" in self.text("#notice"), "the refusal")
        self.run_js("document.getElementById('key').value = ''; document.getElementById('key').focus()")
        self.press(self.key, Keys.TAB)
        self.wait(lambda: self.text("#status") == "ready", "ready")
        self.assertFalse(self.find("#notice").is_displayed())
        self.assertTrue(self.ask(TEXT))
        self.open()  # a reload in the same tab
        self.assertEqual(self.text("#status"), "ready")
        self.assertNotIn(self.key, self.run_js("return JSON.stringify(localStorage)"))
        self.driver.switch_to.new_window("tab")
        self.open()
        self.assertEqual(self.text("#status"), "key needed")


class ServerThatGoes(Page):
    def setUp(self):
        super().setUp()
        self.expected_errors = ("net::ERR_",)

    def test_a_server_that_is_killed(self):
        self.begin_long()
        self.server.kill()
        self.wait(lambda: "connection broke" in self.text(".turn .problem"), "the message")
        self.assertGreater(len(self.answer()), len(TEXT) + 20)
        self.assertEqual(self.text("#status"), "no answer")
        self.send("Again")
        self.wait(lambda: "does not answer" in self.text("#notice"), "the message")
        self.assertTrue(self.find("#notice").is_displayed())
        self.assertEqual(self.find("#prompt").get_attribute("value"), "Again")
        self.assertEqual(len(self.all(".turn")), 1)


class Full(Page):
    options = ("--slots", "1", "--queue", "1")

    def test_a_full_queue_is_said(self):
        self.expected_errors = ("429",)
        stop = threading.Event()

        def hold():
            body = {"prompt": TEXT, "max_tokens": LONG, "stream": True, "ignore_eos": True}
            while not stop.is_set():
                request = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        while not stop.is_set() and answer.readline():
                            pass
                except urllib.error.HTTPError:
                    time.sleep(0.01)

        # More than fit, so that the queue is full again as soon as one has ended.
        threads = [threading.Thread(target=hold) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            self.wait(lambda: self.server.metrics()["adder_queue_length"] >= 1, "a full queue")
            self.send(TEXT)
            self.wait(lambda: "The server is busy" in self.text("#notice"), "the message")
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class Policy(unittest.TestCase):
    def test_the_page_is_sent_with_a_strict_policy(self):
        server = Server(ADDER, key="k")
        self.addCleanup(server.stop)
        with urllib.request.urlopen(server.url + "/") as answer:  # the page itself needs no key
            headers, page = answer.headers, answer.read().decode()
        self.assertEqual(headers.get_content_type(), "text/html")
        policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
        self.assertEqual(policy["default-src"], "'none'")
        self.assertEqual(policy["connect-src"], "'self'")
        self.assertNotIn("unsafe-eval", headers["Content-Security-Policy"])
        self.assertNotIn("http:", page.replace("http://www.w3.org/2000/svg", ""))
        self.assertNotIn("https:", page)
        self.assertNotIn("innerHTML", page)


if __name__ == "__main__":
    ADDER = sys.argv.pop(1)
    unittest.main(verbosity=2)

const $ = (id) => document.getElementById(id);
const options = $("options").elements, tabs = document.querySelectorAll("nav button");
const integer = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
// session: the chosen one's id, "" for none; sessions: the server's list; turns: what the log shows;
// run: the answer in progress; samples: [{tokens, norms}] of the last one that was measured.
const app = {model: "", session: "", sessions: [], turns: [], run: null, samples: []};
const chosen = () => app.sessions.find((session) => session.id === app.session);
const mode = () => document.querySelector("[name=mode]:checked").value;
const narrow = () => !matchMedia("(min-width: 68rem)").matches;
const plural = (count, word) => `${integer.format(count)} ${word}${count === 1 ? "" : "s"}`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Strings among the children become text nodes, so that no text is ever read as HTML.
function el(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const button = (label, act, more) => el("button", {type: "button", textContent: label, onclick: act, ...more});
const note = (text) => el("p", {className: "note"}, text);
const offer = (text) => { show("write"); $("prompt").value = text; $("prompt").focus(); };

// ---- what the browser keeps: settings and texts, since the server keeps states only

function recall(name, otherwise) {
  try { return JSON.parse(localStorage.getItem("adder." + name)) ?? otherwise; } catch { return otherwise; }
}

function keep(name, value, storage = "localStorage") {
  // Storage may be full or switched off; then the page forgets, which harms nothing else.
  try { window[storage].setItem("adder." + name, JSON.stringify(value)); } catch { }
}

// A session made anew under an old name has another birthday, and none of the old text.
function recallTurns() {
  const kept = recall("text." + app.session, {});
  return kept.created === (chosen()?.created ?? 0) && Array.isArray(kept.turns) ? kept.turns : [];
}

const keepTurns = () => keep("text." + app.session, {created: chosen()?.created ?? 0, turns: app.turns});

// ---- talking to the server

class Problem extends Error {
  constructor(message, status = 0) { super(message); this.status = status; }
}

async function api(path, body, method = body === undefined ? "GET" : "POST", signal = undefined) {
  const key = $("key").value.trim(), headers = key ? {Authorization: "Bearer " + key} : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, said = "";
  try {
    response = await fetch(path, {method, headers, signal, body: JSON.stringify(body), cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setStatus("bad", "no answer");
    throw new Problem("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  try { said = (await response.json()).error.message; } catch { }
  said = String(said || `The server answered with status ${response.status}.`);
  if (response.status === 401) {
    setStatus("bad", "key needed");
    said = key ? "The server does not accept this API key." : "The server asks for an API key.";
  } else if (response.status === 429 || response.status === 503) {
    const wait = response.headers.get("Retry-After");
    said = `The server is busy: ${said} Try again in ${wait ? plural(Number(wait), "second") : "a moment"}.`;
  }
  throw new Problem(said, response.status);
}

const json = async (...call) => (await api(...call)).json();
const sessionPath = (id, action = "") => "/v1/sessions/" + encodeURIComponent(id) + action;

// The data of each server-sent event.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((ended) => ended.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line !== "" || data.length === 0) continue;
      yield data.join("\n");
      data = [];
    }
  }
}

function setStatus(kind, text) {
  if ($("status").textContent !== text) $("status").textContent = text;
  $("status").className = "small " + kind;
}

async function connect() {
  try {
    app.model = (await json("/v1/models")).data[0]?.id ?? "";
    $("model").textContent = app.model;
    setStatus("ready", app.run ? "writing" : "ready");
    showProblem($("notice"), null);
    await refreshSessions();
    if (app.turns.length === 0) app.turns = recallTurns();
  } catch (problem) {
    showProblem($("notice"), problem);
  }
  if (!app.run) showLog();
}

// Notices a server that went or came back while nobody asks it for anything.
async function watch() {
  const status = $("status").textContent;
  if (document.hidden || app.run || status === "key needed") return;
  if (status !== "ready") return connect();
  try { await api("/health"); } catch (problem) { showProblem($("notice"), problem); }
}

function showProblem(box, problem, more = "") {
  box.hidden = !problem;
  box.replaceChildren(problem ? `${problem.message.replace(/[^.!?]$/, "$&.")} ${more}` : "");
  if (problem?.status === 401) box.append(button("Enter the key", () => { show("settings"); $("key").focus(); }));
}

// ---- one answer

function settings() {
  const out = {};
  for (const name of ["temperature", "max_tokens", "top_p", "top_k", "min_p", "repeat_penalty", "seed"]) {
    if (options[name].value !== "") out[name] = Number(options[name].value);
  }
  const stop = options.stop.value.split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
  return {...out, ...(stop.length && {stop}), ...(!options.cache.checked && {cache: false}), ...format()};
}

// What bounds the answer; throws what to show when the schema is not JSON.
function format() {
  const rules = options.rules.value;
  switch (options.format.value) {
    case "json": return {response_format: {type: "json_object"}};
    case "grammar": return {grammar: rules};
    case "schema":
      try {
        return {response_format: {type: "json_schema", json_schema: {name: "page", schema: JSON.parse(rules)}}};
      } catch (error) {
        throw new Problem("The schema in the settings is not JSON: " + error.message);
      }
    default: return {};
  }
}

function requestBody(turn) {
  const body = {model: app.model || undefined, stream: true, stream_options: {include_usage: true}, ...settings()};
  if (app.session) body.session = app.session;
  if (turn.mode === "completion") return {...body, prompt: turn.prompt};
  body.messages = [];
  if (options.system.value && !(app.session && turn.from)) {
    body.messages.push({role: "system", content: options.system.value});
  }
  // A session's state has seen what came before; without one the whole chat is sent again.
  for (const past of app.session ? [] : app.turns) {
    if (past.mode !== "chat" || past === turn) continue;
    body.messages.push({role: "user", content: past.prompt}, {role: "assistant", content: past.answer});
  }
  body.messages.push({role: "user", content: turn.prompt});
  return body;
}

async function send() {
  if (app.run) return;
  if (!$("options").checkValidity()) return show("settings"), $("options").reportValidity();
  const from = chosen()?.tokens ?? 0;
  const turn = {mode: mode(), prompt: $("prompt").value, answer: "", from, tokens: from, figures: {}};
  if (!turn.prompt.trim() && !(turn.mode === "completion" && from)) {
    showProblem($("notice"), new Problem("There is nothing to send yet: write something first."));
    return $("prompt").focus();
  }
  showProblem($("notice"), null);
  if (app.turns.length === 0) $("log").replaceChildren();
  app.turns.push(turn);
  const run = {turn, view: showTurn(turn, true), stopper: new AbortController(), waiting: "", count: 0, id: "",
               began: performance.now(), first: 0, painted: 0, frame: 0, rate: 0, done: false, samples: []};
  $("log").scrollTop = $("log").scrollHeight;
  $("prompt").value = "";
  setRun(run);
  let problem = null;
  try {
    const path = turn.mode === "chat" ? "/v1/chat/completions" : "/v1/completions";
    await receive(await api(path, requestBody(turn), "POST", run.stopper.signal), run);
  } catch (error) {
    turn.figures.end = run.stopper.signal.aborted ? "by you" : "by an error";
    if (!run.stopper.signal.aborted) problem = error;
    if (problem && !(problem instanceof Problem)) {
      setStatus("bad", "no answer");
      problem = new Problem("The connection broke before the answer was complete.");
    }
  }
  run.done = true;
  cancelAnimationFrame(run.frame);
  paint(run);
  run.view.text.removeAttribute("aria-busy");
  if (app.session) await settle(turn);
  const nothing = problem && !turn.answer;
  if (nothing) {  // as if it had not been sent
    app.turns.pop();
    if ($("prompt").value === "") $("prompt").value = turn.prompt;
    showProblem($("notice"), problem, "Your text is back in the box.");
  } else if (problem) {
    turn.problem = problem.message;
  }
  setRun(null);
  keepTurns();
  if (problem || app.session) showLog();
}

async function receive(response, run) {
  const {figures} = run.turn;
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data), choice = chunk.choices?.[0];
    if (chunk.error) throw new Problem(String(chunk.error.message ?? "The answer failed."), 500);
    run.id = chunk.id ?? run.id;
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (text) {
      if (!run.first) {
        run.first = performance.now();
        figures.wait = run.first - run.began;
        poll(run);
      }
      run.count += 1;
      run.turn.answer += text;
      run.waiting += text;
      run.frame ||= requestAnimationFrame(() => paint(run));
    }
    if (choice?.finish_reason === "length") figures.end = "at max tokens";
    if (chunk.usage) {
      figures.answer = chunk.usage.completion_tokens;
      figures.prompt = chunk.usage.prompt_tokens;
      figures.cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
    }
    if (chunk.timings?.decode_tok_s > 0) figures.rate = chunk.timings.decode_tok_s;
  }
  throw new TypeError("the stream ended early");
}

// At most once a frame, however fast the tokens come.
function paint(run) {
  const log = $("log"), atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  const now = performance.now(), passed = (now - run.first) / 1000;
  run.frame = 0;
  run.view.answer.appendData(run.waiting);
  run.waiting = "";
  if (run.done || now - run.painted > 250) {
    run.painted = now;
    // A piece of text is about a token; what the server counts replaces the estimate.
    if (!run.done && passed > .05) run.rate = (run.count - 1) / passed;
    showFigures(run.view.figures, {answer: run.count, rate: run.rate, ...run.turn.figures});
    if (run.done) run.turn.figures = {answer: run.count, rate: run.rate, ...run.turn.figures};
  }
  if (atEnd) log.scrollTop = log.scrollHeight;
}

// The server notices a closed connection within a step; only then does the session stand still.
async function settle(turn) {
  try {
    for (let tries = 0; tries < 20; ++tries) {
      const session = await json(sessionPath(app.session));
      turn.tokens = session.tokens;
      if (!session.busy) break;
      await sleep(100);
    }
  } catch { }  // the list's own request says what is wrong
  await refreshSessions();
}

function setRun(run) {
  const active = document.activeElement;
  app.run = run;
  $("stop").hidden = !run;
  $("send").hidden = $("clear").disabled = !!run;
  if (active === $("send") && run) $("stop").focus();
  if (active === $("stop") && !run) $("send").focus();
  if (run || $("status").textContent === "writing") setStatus("ready", run ? "writing" : "ready");
  showSessions();
}

// ---- the log

function showTurn(turn, live) {
  const answer = document.createTextNode(turn.answer), text = el("div", {className: "text"}, answer);
  if (live === true) Object.assign(text, {ariaLive: "polite", ariaBusy: "true"});
  const figures = el("dl", {className: "figures"}), tools = el("div", {className: "row"});
  const article = el("article", {className: "turn"});
  const tool = (name, act) => tools.append(button(name, act, {className: "quiet"}));
  if (turn.mode === "chat") {
    article.append(el("h3", {className: "who"}, "You"), el("div", {className: "text said"}, turn.prompt),
                   el("h3", {className: "who"}, "Model"), text);
  } else {
    text.prepend(el("span", {className: "given"}, turn.prompt));
    article.append(text);
  }
  if (turn.cut) article.append(note(`The state no longer holds the last ${plural(turn.cut, "token")} of this.`));
  if (turn.problem) {
    // Said once, not whenever the log is drawn.
    article.append(el("p", {className: "problem", role: turn === app.turns.at(-1) ? "alert" : null}, turn.problem));
  }
  if (navigator.clipboard) tool("Copy", async (event) => {
    try { await navigator.clipboard.writeText(turn.answer); } catch { return; }
    event.target.textContent = "Copied";
  });
  if (app.session && turn.tokens > turn.from) {
    tool("Roll back to before this", () => rollBack(chosen().tokens - turn.from, turn.prompt));
  } else if (turn.mode === "completion" && !app.session) {
    tool("Go on from here", () => offer(turn.prompt + turn.answer));
  }
  article.append(el("footer", {}, figures, tools));
  showFigures(figures, turn.figures);
  $("log").append(article);
  return {text, answer, figures};
}

function showFigures(list, {answer, rate, wait, prompt, cached, end}) {
  const rows = [
    ["answer", answer >= 0 && plural(answer, "token")],
    ["speed", rate && `${integer.format(rate)} tokens/s`],
    ["first after", wait && (wait < 950 ? `${integer.format(wait)} ms` : `${(wait / 1000).toFixed(1)} s`)],
    ["prompt", prompt >= 0 && plural(prompt, "token")], ["cached", cached >= 0 && integer.format(cached)],
    ["ended", end],
  ];
  list.replaceChildren(...rows.filter(([, value]) => value).map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function showLog() {
  const session = chosen(), more = (session?.tokens ?? 0) - (app.turns.at(-1)?.tokens ?? 0);
  $("where").textContent = session ? `session ${session.id}` : "";
  $("log").replaceChildren();
  if (app.turns.length === 0 && !(more > 0)) $("log").append(welcome());
  app.turns.forEach(showTurn);
  if (session && more > 0) {
    $("log").append(note(`This session holds ${plural(more, "token")}${app.turns.length ? " more" : ""} whose text ${
      ""}this browser does not have. What you write goes on from there.`));
  }
  $("log").scrollTop = $("log").scrollHeight;
}

function welcome() {
  const chat = mode() === "chat", ideas = ["The morning after the ball", "She was the youngest of the two daughters"];
  return el("div", {className: "empty"},
    el("h2", {}, chat ? "Say something" : "Begin a text"),
    el("p", {className: "soft"}, chat ? "The model answers here as it writes." : "The model goes on where you stop."),
    /demo/.test(app.model) ? el("p", {className: "soft"}, "The demo model writes English-looking words; it knows nothing.") : "",
    el("div", {className: "row"}, ...ideas.map((idea) => button(idea, () => offer(idea)))));
}

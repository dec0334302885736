// ---- sessions

async function refreshSessions() {
  try {
    app.sessions = (await json("/v1/sessions")).data;
    showProblem($("sessions-problem"), null);
  } catch (problem) {
    showProblem($("sessions-problem"), problem);
  }
  if (app.session && !chosen() && !app.run && $("sessions-problem").hidden) {
    showProblem($("sessions-problem"), new Problem(`The session ${app.session} is gone.`));
    choose("");
  }
  showSessions();
}

function choose(id, turns) {
  app.session = id;
  app.turns = turns ?? recallTurns();
  keep("session", id);
  keepTurns();
  showLog();
  showSessions();
  $("tree").querySelector("[aria-current]")?.parentNode.scrollIntoView({block: "nearest"});
}

// The list as a tree: a fork stands below what it was forked from.
function showSessions() {
  const focus = document.activeElement?.dataset.key, ids = new Set(app.sessions.map(({id}) => id)), shown = new Set();
  const list = el("ul", {}, el("li", {}, sessionButton("", "No session", "the whole chat is sent each time")));
  const grow = (into, of) => {
    for (const session of of) {
      if (shown.has(session.id)) continue;
      shown.add(session.id);
      const item = el("li", {}, sessionButton(session.id, session.id, describe(session, ids)));
      if (session.id === app.session) item.append(actions(session));
      const forks = app.sessions.filter((other) => other.parent === session.id);
      const inside = el("ul", {ariaLabel: `Forks of ${session.id}`});
      grow(inside, forks);
      if (forks.length) item.append(inside);
      into.append(item);
    }
  };
  grow(list, app.sessions.filter((session) => !ids.has(session.parent)));
  grow(list, app.sessions);  // nothing may hide, whatever the parents say
  $("tree").replaceChildren(list);
  $("sessions-intro").hidden = ids.size > 0;
  if (focus) $("tree").querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
}

function describe(session, ids) {
  const parts = [plural(session.tokens, "token"), plural(session.turns, "turn")];
  if (session.bytes) parts.push(`${integer.format(session.bytes / 1024)} KiB`);
  if (session.saved) parts.push(session.bytes ? "saved" : "on disk");
  if (session.busy) parts.push("busy");
  if (session.parent && !ids.has(session.parent)) parts.push(`fork of ${session.parent}, now deleted`);
  return parts.join(", ");
}

function sessionButton(id, name, about) {
  const node = button("", () => { choose(id); if (narrow()) show("write"); }, {className: "session",
    disabled: app.run !== null, ariaCurrent: id === app.session ? "true" : null});
  node.append(el("strong", {}, name), el("span", {className: "small soft"}, about));
  node.dataset.key = "session " + id;
  return node;
}

function actions(session) {
  const group = el("div", {className: "row actions", role: "group", ariaLabel: `Session ${session.id}`});
  const add = (name, act, properties) => {
    const node = button(name, act, {disabled: session.busy || app.run !== null, ...properties});
    node.dataset.key = name;
    group.append(node);
  };
  add("Fork", () => fork(session));
  add("Roll back", () => askRollBack(session));
  add("Save", () => change(() => api(sessionPath(session.id, "/save"), {})));
  add("Restore", () => change(() => api(sessionPath(session.id, "/restore"), {})));
  add("Delete", () => remove(session), {className: "danger"});
  return group;
}

// Runs one change of sessions, then shows of the texts what the state still holds.
async function change(work) {
  try {
    await work();
    await refreshSessions();
  } catch (problem) {
    showProblem($("sessions-problem"), problem);
    if (narrow()) show("sessions");
    return;
  }
  const tokens = chosen()?.tokens;
  if (tokens !== undefined) {
    app.turns = app.turns.filter((turn) => turn.from < tokens || turn.tokens === tokens);
    const last = app.turns.at(-1);
    if (last?.tokens > tokens) {
      last.cut = (last.cut ?? 0) + last.tokens - tokens;
      last.tokens = tokens;
    }
    keepTurns();
  }
  showLog();
}

const nameField = {label: "Name, or nothing for one made up", pattern: "(?!\\.)[A-Za-z0-9._\\-]{1,64}",
                   title: "1 to 64 letters, digits, dots, dashes and underscores, not beginning with a dot"};

// from: the session to fork; none for an empty one.
async function create(path, title, text, turns) {
  const id = await ask({title, text, yes: "Create", field: nameField});
  if (id !== null) await change(async () => {
    const made = await json(path, id ? {id} : {});
    app.sessions.push(made);
    choose(made.id, turns);
  });
}

function fork({id}) {
  create(sessionPath(id, "/fork"), `Fork ${id}`, "The fork goes on from the same state; both can then differ.",
         structuredClone(app.turns));
}

async function askRollBack({id, tokens: max}) {
  const tokens = await ask({title: `Roll back ${id}`, text: "The state becomes exactly what it was then.", yes: "Roll back",
    field: {label: `Tokens to take back, of ${integer.format(max)}`, type: "number", min: 1, max, required: true}});
  if (tokens !== null) await rollBack(Number(tokens), "");
}

async function rollBack(tokens, prompt) {
  if (app.run) return;
  await change(() => api(sessionPath(app.session, "/rollback"), {tokens}));
  if ($("prompt").value === "" && $("sessions-problem").hidden) $("prompt").value = prompt;
}

async function remove({id}) {
  if (await ask({title: `Delete ${id}?`, text: "Its state is lost, on disk too.", yes: "Delete"}) === null) return;
  await change(async () => {
    await api(sessionPath(id), undefined, "DELETE");
    try { localStorage.removeItem("adder.text." + id); } catch { }
    app.sessions = app.sessions.filter((session) => session.id !== id);
    choose("");
  });
  $("new-session").focus();
}

// Resolves to the field's value, "" without a field, null when cancelled.
function ask({title, text, yes, field}) {
  const {label = "", ...rest} = field ?? {};
  const input = el("input", {id: "ask-value", autocomplete: "off", disabled: !field, ...rest}), dialog = $("ask");
  for (const [name, says] of Object.entries({title, text, yes, label})) $("ask-" + name).textContent = says;
  $("ask-field").hidden = !field;
  $("ask-value").replaceWith(input);
  dialog.returnValue = "";
  dialog.showModal();
  (field ? input : $("ask-no")).focus();
  return new Promise((resolve) => { dialog.onclose = () => resolve(dialog.returnValue ? input.value : null); });
}

// ---- views and events

function show(view) {
  document.body.dataset.view = view;
  for (const tab of tabs) tab.ariaCurrent = tab.dataset.show === view ? "page" : null;
}

function showMode() {
  keep("mode", mode());
  $("prompt-label").textContent = mode() === "chat" ? "Message" : "Text to continue";
  if (app.turns.length === 0) showLog();
}

for (const tab of tabs) tab.onclick = () => show(tab.dataset.show);
for (const radio of document.querySelectorAll("[name=mode]")) radio.onchange = showMode;
$("composer").onsubmit = (event) => { event.preventDefault(); send(); };
$("options").onsubmit = (event) => event.preventDefault();
$("options").onchange = (event) => {
  if (event.target === $("key")) return;
  keep("settings", Object.fromEntries([...options].filter((field) => field.name)
    .map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value])));
};
$("key").onchange = () => {
  const key = $("key").value.trim();
  // Nothing else can stand in a header.
  $("key").setCustomValidity(/^[\x21-\x7e]*$/.test(key) ? "" : "A key has no blanks and only plain letters, digits and signs.");
  if (!$("key").reportValidity()) return;
  keep("key", key, "sessionStorage");
  connect();
};
$("stop").onclick = () => app.run?.stopper.abort();
$("ask-no").onclick = () => $("ask").close();
$("new-session").onclick = () => create("/v1/sessions", "New session", "It begins empty.");
$("clear").onclick = () => { app.turns = []; keepTurns(); showLog(); $("prompt").focus(); };
document.addEventListener("keydown", (event) => {
  if ($("ask").open || event.isComposing) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return event.preventDefault(), send();
  if (event.key !== "Escape") return;
  if (app.run) app.run.stopper.abort();
  else if (narrow() && document.body.dataset.view !== "write") offer($("prompt").value);
});
new ResizeObserver(drawPlot).observe($("plot"));

for (const [name, value] of Object.entries(recall("settings", {}))) {
  const field = options[name];
  if (field?.type === "checkbox") field.checked = value === true;
  else if (field) field.value = value;
}
try { $("key").value = JSON.parse(sessionStorage.getItem("adder.key")) ?? ""; } catch { }
if (recall("mode") === "completion") document.querySelector("[value=completion]").checked = true;
app.session = String(recall("session", ""));
showMode();
showSessions();
connect();
setInterval(watch, 10000);

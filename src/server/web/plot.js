// ---- the state's plot

async function poll(run) {
  while (app.run === run && !run.done) {
    try {
      const all = (await json("/v1/state")).data;
      const mine = all.find(({id}) => id === run.id) ?? all.find(({session}) => app.session && session === app.session);
      if (mine) measured(run, mine);
    } catch { return; }  // the answer's own request says what is wrong
    await sleep(100);
  }
}

function measured(run, {tokens, layers}) {
  if (run.samples.at(-1)?.tokens === tokens) return;
  run.samples.push({tokens, norms: layers.map((layer) => layer.norm)});
  // A long run keeps its whole course, at half the detail.
  if (run.samples.length > 400) run.samples = run.samples.filter((_, index) => index % 2 === 0);
  app.samples = run.samples;  // those of the last run stay until here
  drawState(layers);
}

function short(value) {
  if (!Number.isFinite(value)) return "not finite";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

function drawState(layers) {
  drawPlot();
  $("values").hidden = layers.length === 0;
  $("values-title").textContent = `Last values, after ${plural(app.samples.at(-1)?.tokens ?? 0, "token")}`;
  $("rows").replaceChildren(...layers.map((layer) => {
    const cells = [layer.norm, layer.deviation, layer.conv_norm].map((value) =>
      el("td", {className: Number.isFinite(value) ? "" : "bad"}, short(value)));
    return el("tr", {}, el("th", {scope: "row"}, String(layer.layer)), ...cells,
              el("td", {}, `${(layer.drift * 100).toFixed(0)} %`),
              el("td", {className: layer.non_finite > 0 ? "bad" : ""}, `${short(layer.non_finite * 100)} %`));
  }));
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Round values that span low..high, and where they lie: decades when it is wide, else steps of 1, 2 or 5.
function axis(low, high) {
  const ticks = [];
  if (high / low > 30) {
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) ticks.push(10 ** e);
    return {ticks, at: Math.log10};
  }
  const unit = 10 ** Math.floor(Math.log10(high / 3)), step = [1, 2, 5, 10].find((times) => times * unit >= high / 3) * unit;
  for (let tick = 0; tick < high + step; tick += step) ticks.push(tick);
  return {ticks, at: (value) => value};
}

function drawPlot() {
  const plot = $("plot"), width = plot.clientWidth || 288, height = plot.clientHeight || 160, {samples} = app;
  const good = (value) => Number.isFinite(value) && value > 0, norms = samples.flatMap((sample) => sample.norms).filter(good);
  plot.replaceChildren();
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("plot-note").hidden = norms.length > 0;
  plot.toggleAttribute("hidden", norms.length === 0);
  if (norms.length === 0) return;
  const {ticks, at} = axis(Math.min(...norms), Math.max(...norms)), low = at(ticks[0]), high = at(ticks.at(-1));
  const first = samples[0].tokens, last = samples.at(-1).tokens, layers = samples[0].norms.length;
  const left = 44, right = width - 10, top = 10, bottom = height - 34;
  const x = (tokens) => left + (right - left) * (last > first ? (tokens - first) / (last - first) : 1);
  const y = (value) => bottom - (bottom - top) * (at(value) - low) / (high - low);
  const write = (text, x, y, anchor) => plot.append(svg("text", {x, y, "text-anchor": anchor}, text));
  for (const tick of ticks) {
    plot.append(svg("line", {class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick)}));
    write(short(tick), left - 6, y(tick) + 4, "end");
  }
  if (last > first) write(integer.format(first), left, bottom + 16, "start");
  write(integer.format(last), right, bottom + 16, "end");
  write("tokens in the state", (left + right) / 2, bottom + 30, "middle");
  for (let layer = 0; layer < layers; ++layer) {
    const points = samples.filter((sample) => good(sample.norms[layer]))
      .map((sample) => [x(sample.tokens).toFixed(1), y(sample.norms[layer]).toFixed(1)]);
    if (points.length === 0) continue;
    const [cx, cy] = points.at(-1), dot = svg("circle", {cx, cy, r: 2.5});
    const line = svg("polyline", {points: points.join(" ")}, svg("title", {}, `layer ${layer}`));
    // From the first layer's green to the last one's violet.
    for (const mark of [line, dot]) mark.style.setProperty("--hue", 150 + 130 * layer / Math.max(layers - 1, 1));
    plot.append(line, dot);
  }
  plot.setAttribute("aria-label", `State norms of ${plural(layers, "layer")} over ${plural(last, "token")}; ${
    ""}the table after this has the last values`);
}

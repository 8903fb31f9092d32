// The inspector: for a token of the answer, or the whole answer, the context shaded by what the indexer selected.
"use strict";

// source: {header, selection(i) → Promise, totals() → Promise}, shaped as inspect_report.Recording gives them.
function mountInspector(root, source) {
  const { header } = source;
  const control = new Set(header.control);
  const state = { token: null, layer: "all", counts: null, length: 0, of: 1, request: 0 };
  root.replaceChildren();
  root.classList.add("dsa");

  const head = make("section", "dsa-head");
  const figure = make("div", "dsa-figure");
  const plot = make("div", "dsa-plot-box");
  head.append(figure, plot);

  const tokens = make("div", "dsa-tokens", undefined, "Pick a token to see what the model read just before writing it");
  const chips = header.shares.map((share, i) => {
    const text = header.texts[header.prompt_tokens + i];
    const shown = control.has(header.prompt_tokens + i) ? controlName(text) : text.replace(/\n/g, "⏎");
    const chip = make("button", "dsa-token", shown.trim() ? shown : "␣");
    chip.type = "button";
    chip.disabled = i >= header.recorded;
    chip.title = chip.disabled ? "not recorded: the recording's memory was full" : `token ${i + 1}: read ${percent(share)} of its context`;
    chip.addEventListener("click", () => pick(state.token === i ? null : i));
    tokens.append(chip);
    return chip;
  });
  const slider = make("input", "dsa-slider");
  Object.assign(slider, { type: "range", min: 0, max: header.recorded, value: 0 });
  slider.setAttribute("aria-label", "Token of the answer; at the left end, the whole answer");
  slider.addEventListener("input", () => pick(+slider.value ? +slider.value - 1 : null));

  const layers = make("div", "dsa-layers");
  const layerButtons = [];
  if (header.layers <= 8) {
    for (const layer of ["all", ...Array(header.layers).keys()]) {
      const button = make("button", "dsa-layer", layer === "all" ? "All layers" : `${layer}`,
        layer === "all" ? "Shade by how many layers selected a token" : `Only what layer ${layer} selected`);
      button.type = "button";
      button.addEventListener("click", () => setLayer(layer));
      layerButtons.push([layer, button]);
      layers.append(button);
    }
  } else {
    const select = make("select", "dsa-layer");
    for (const layer of ["all", ...Array(header.layers).keys()]) select.add(new Option(layer === "all" ? "All layers" : `Layer ${layer}`, layer));
    select.addEventListener("change", () => setLayer(select.value === "all" ? "all" : +select.value));
    layerButtons.push([null, select]);
    layers.append(select);
  }

  const canvas = make("canvas", "dsa-heat");
  const heatNote = make("div", "dsa-note");
  const passages = make("ol", "dsa-passages");
  const text = make("div", "dsa-text");
  const legend = make("div", "dsa-legend");
  legend.append(make("span", "", "not read"), ...[1, 2, 3, 4].map((level) => make("i", `dsa-l${level}`)), make("span", "", "read by all"));
  const section = (title, hint, ...children) => {
    const box = make("section", "dsa-section");
    const heading = make("h3", "", title);
    heading.append(make("span", "dsa-hint", "?", hint));
    box.append(heading, ...children);
    return box;
  };
  root.append(
    head,
    section("Answer", "Each token was written after reading only the selected part of the context. Pick one, or none for all of them together.", tokens, slider),
    section("Layers and positions", "One row a layer, the conversation from left to right. Colour: the share of the tokens at that place which the layer selected. Click a row to look at one layer.", layers, canvas, heatNote),
    section("Most read passages", "Sentences before the question, by the share of their tokens that the indexer selected: how often it chose them, not how strongly the attention weighed them.", passages),
    section("The conversation, shaded", "The darker a token, the more often the indexer selected it. Tokens without colour were never read by attention; the indexer itself scores every token, at a fraction of the cost.", legend, text),
  );
  let at = () => null;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const spot = at(event.clientX - box.left, event.clientY - box.top);
    if (spot) heatNote.textContent = `Layer ${spot.layer}, tokens ${grouped(spot.from)}–${grouped(spot.to)}: ${percent(spot.share)} read`;
  });
  canvas.addEventListener("mouseleave", describeHeat);
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    const spot = at(event.clientX - box.left, event.clientY - box.top);
    if (!spot) return;
    setLayer(state.layer === spot.layer ? "all" : spot.layer);
    scrollToToken(spot.from);
  });

  function describeHeat() {
    heatNote.textContent = `0 … ${grouped(state.length - 1)}, the question's turn at the right`;
  }

  async function pick(token) {
    const request = ++state.request;
    const data = await (token === null ? source.totals() : source.selection(token));
    if (request !== state.request || !data) return;
    state.token = token;
    state.length = data.position + 1;
    state.layers = data.layers.map((row) => (token === null ? countsOfTotals(row) : countsOfBitmap(row, state.length)));
    draw();
  }

  function setLayer(layer) {
    state.layer = layer;
    draw();
  }

  function draw() {
    if (!state.layers) return;
    const chosen = state.layer === "all" ? state.layers : [state.layers[state.layer]];
    const times = state.token === null ? header.recorded : 1;
    state.of = chosen.length * times;
    state.counts = new Uint32Array(state.length);
    for (const row of chosen) for (let s = 0; s < state.length; s++) state.counts[s] += row[s];
    chips.forEach((chip, i) => chip.classList.toggle("dsa-picked", i === state.token));
    slider.value = state.token === null ? 0 : state.token + 1;
    for (const [layer, button] of layerButtons) {
      if (layer === null) button.value = state.layer;
      else button.classList.toggle("dsa-picked", layer === state.layer);
    }
    drawFigure();
    at = drawHeatMap(canvas, { counts: state.layers, length: state.length, of: times, layer: state.layer });
    describeHeat();
    const shown = { counts: state.counts, of: state.of, length: state.length };
    const best = drawPassages(passages, { texts: header.texts, control, prompt: header.prompt_tokens }, shown, scrollToToken);
    drawText(text, { texts: header.texts, control }, shown);
    if (best) scrollToToken(best.from, false);
  }

  function drawFigure() {
    const whole = state.token === null;
    const share = whole ? header.read / header.dense : header.shares[state.token];
    figure.replaceChildren(
      make("strong", "", percent(share), "tokens that attention read, over the tokens that dense attention would have read; mean over the layers"),
      make("span", "", whole ? "of the context read, against dense attention" : `of ${grouped(state.length)} tokens read for “${header.texts[header.prompt_tokens + state.token].trim()}”`),
    );
    plot.replaceChildren(sharePlot(header.shares, state.token, (i) => i < header.recorded && pick(i)),
      make("div", "dsa-note", header.recorded < header.shares.length ? `first ${header.recorded} of ${header.shares.length} tokens recorded` : "share read, token by token; dashed: dense"));
  }

  function scrollToToken(position, flash = true) {
    const spans = [...text.querySelectorAll("[data-from]")];
    const target = spans.filter((span) => +span.dataset.from <= position).pop() || spans[0];
    if (!target) return;
    text.scrollTop += target.getBoundingClientRect().top - text.getBoundingClientRect().top - 60;
    if (flash) target.animate([{ outline: "2px solid currentColor" }, { outline: "2px solid transparent" }], 900);
  }

  if (window.ResizeObserver) new ResizeObserver(() => state.layers && draw_heat_again()).observe(canvas.parentElement);
  function draw_heat_again() {
    at = drawHeatMap(canvas, { counts: state.layers, length: state.length, of: state.token === null ? header.recorded : 1, layer: state.layer });
  }
  pick(null);
  return { pick, setLayer, redraw: draw };
}

function mountReport(root, report) {
  const source = { header: report, selection: async (i) => report.selections[i], totals: async () => report.totals };
  root.prepend(make("h1", "", "What DeepSeek Sparse Attention read"));
  const body = make("div");
  root.append(body);
  return mountInspector(body, source);
}

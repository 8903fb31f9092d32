// The inspector: shades the context by what the indexer selected for one token of the answer, or for the whole answer.
"use strict";

// source: {header, selection(i) → Promise, totals() → Promise}, as report.recording.Recording returns them.
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
        layer === "all" ? "The mean of all layers" : `Only what layer ${layer} selected`);
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
  legend.append(make("span", "", "not read"), ...[1, 2, 3, 4].map((level) => make("i", `dsa-l${level}`)), make("span", "", "strongest"));
  const section = (title, hint, ...children) => {
    const box = make("section", "dsa-section");
    const heading = make("h3", "", title);
    heading.append(make("span", "dsa-hint", "?", hint));
    box.append(heading, ...children);
    return box;
  };
  root.append(
    head,
    section("Answer", "Each token was written after reading only the selected part of the context. Pick one token, or none to see all of them together.", tokens, slider),
    section("Layers and positions", "One row for each layer, the conversation from left to right. The colour shows how strongly the layer's indexer scored the tokens that it selected there. Click a row to look at one layer.", layers, canvas, heatNote),
    section("Strongest passages", "Sentences before the question, ordered by the indexer's scores of their tokens: 1 is the strongest token of the context, 0 the weakest one that was selected. The score decides what attention reads, not how much weight attention gives it.", passages),
    section("The conversation, shaded", "The darker a token, the higher the indexer scored it among those it selected. Tokens without colour were never read by attention; the indexer itself scores every token, at a fraction of the cost.", legend, text),
  );
  let at = () => null;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const spot = at(event.clientX - box.left, event.clientY - box.top);
    if (spot) heatNote.textContent = `Layer ${spot.layer}, tokens ${grouped(spot.from)}–${grouped(spot.to)}: ${spot.read} of ${spot.to - spot.from + 1} read, strongest ${spot.share.toFixed(2)}`;
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
    heatNote.textContent = `positions 0 to ${grouped(state.length - 1)}`;
  }

  async function pick(token) {
    const request = ++state.request;
    const data = await (token === null ? source.totals() : source.selection(token));
    if (request !== state.request || !data) return;
    state.token = token;
    state.length = data.position + 1;
    state.layers = readLayers(data, token === null);
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
    state.strengths = new Float32Array(state.length); // mean over the layers
    state.peak = 1e-6;
    for (let s = 0; s < state.length; s++) {
      for (const layer of chosen) {
        state.counts[s] += layer.counts[s];
        state.strengths[s] += layer.strengths[s] / chosen.length;
      }
      // The first token attracts attention whatever it says (an attention sink), so it does not set the scale.
      if (s > 0 && state.strengths[s] > state.peak) state.peak = state.strengths[s];
    }
    chips.forEach((chip, i) => chip.classList.toggle("dsa-picked", i === state.token));
    slider.value = state.token === null ? 0 : state.token + 1;
    for (const [layer, button] of layerButtons) {
      if (layer === null) button.value = state.layer;
      else button.classList.toggle("dsa-picked", layer === state.layer);
    }
    drawFigure();
    drawHeat();
    describeHeat();
    const { counts, strengths, peak, of, length } = state;
    const shown = { counts, strengths, peak, of, length };
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

  function drawHeat() {
    if (state.layers) at = drawHeatMap(canvas, { layers: state.layers, length: state.length, layer: state.layer });
  }
  if (window.ResizeObserver) new ResizeObserver(drawHeat).observe(canvas.parentElement);
  pick(null);
  return { pick, setLayer, redraw: draw };
}

function mountReport(root, report) {
  const source = { header: report, selection: async (i) => report.selections[i], totals: async () => report.totals };
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  root.prepend(make("h1", "", "What DeepSeek Sparse Attention read"));
  const body = make("div");
  root.append(body);
  return mountInspector(body, source);
}

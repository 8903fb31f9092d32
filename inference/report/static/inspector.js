// The inspector: shades the context by what the indexer selected for one token of the answer, or for the whole answer.
"use strict";

// source: {header, selection(i), totals(), mass()} → Promises of what report.recording.Recording returns; with `experiment`, also
// {replay(change, onProgress)}, which answers again under a changed selection.
function mountInspector(root, source) {
  const { header } = source;
  const control = new Set(header.control);
  const { story } = header;
  const state = { token: null, layer: "all", counts: null, length: 0, of: 1, request: 0, mass: null };
  root.replaceChildren();
  root.classList.add("dsa");
  const tokenText = (i) => header.texts[header.prompt_tokens + i].trim() || "␣";

  const isShort = header.prompt_tokens + header.recorded <= header.index_topk;
  const steps = mountSteps(source, {
    header,
    onPick: (word) => showWord(word),
    onPassage: source.show,
  });
  const head = make("section", "dsa-head");
  const figure = make("div", "dsa-figure");
  const plot = make("div", "dsa-plot-box");
  head.append(figure, plot);

  const tokens = make("div", "dsa-tokens", undefined, "Pick a token to see what the model read just before writing it");
  const drafted = new Set(header.drafted || []);
  const chips = header.shares.map((share, i) => {
    const text = header.texts[header.prompt_tokens + i];
    const shown = control.has(header.prompt_tokens + i) ? controlName(text) : text.replace(/\n/g, "⏎");
    const chip = make("button", "dsa-token", shown.trim() ? shown : "␣");
    chip.type = "button";
    chip.disabled = i >= header.recorded;
    chip.title = chip.disabled ? "not recorded: the recording's memory was full" : `token ${i + 1}: read ${percent(share)} of its context`;
    if (drafted.has(i)) {
      chip.classList.add("dsa-drafted");
      chip.title += "; guessed by the draft layer and confirmed";
    }
    chip.addEventListener("click", () => pick(state.token === i ? null : i));
    tokens.append(chip);
    return chip;
  });
  const draftNote = make("div", "dsa-note", "underlined: guessed by the draft layer, and confirmed");
  draftNote.hidden = !drafted.size;
  const slider = make("input", "dsa-slider");
  Object.assign(slider, { type: "range", min: 0, max: header.recorded, value: 0 });
  slider.setAttribute("aria-label", "Token of the answer; at the left end, the whole answer");
  slider.addEventListener("input", () => pick(+slider.value ? +slider.value - 1 : null));

  const layers = make("div", "dsa-layers");
  const layerButtons = [];
  if (header.layers <= 8) {
    for (const layer of ["all", ...Array(header.layers).keys()]) {
      const button = make("button", "dsa-layer", layer === "all" ? "All layers" : `Layer ${layer + 1}`,
        layer === "all" ? "The mean of all layers" : `Only what layer ${layer + 1} selected`);
      button.type = "button";
      button.addEventListener("click", () => setLayer(layer));
      layerButtons.push([layer, button]);
      layers.append(button);
    }
  } else {
    const select = make("select", "dsa-layer");
    select.setAttribute("aria-label", "Layer");
    for (const layer of ["all", ...Array(header.layers).keys()]) select.add(new Option(layer === "all" ? "All layers" : `Layer ${layer + 1}`, layer));
    select.addEventListener("change", () => setLayer(select.value === "all" ? "all" : +select.value));
    layerButtons.push([null, select]);
    layers.append(select);
  }

  const canvas = make("canvas", "dsa-heat");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Heat map: which positions of the conversation each layer read");
  const heatTable = make("div");
  const ticks = make("div", "dsa-ticks");
  const heatNote = make("div", "dsa-note dsa-heat-note");
  const passages = make("ol", "dsa-passages");
  const mass = make("div", "dsa-mass");
  const text = make("div", "dsa-text");
  text.tabIndex = 0;
  const legend = make("div", "dsa-legend");
  legend.append(make("i", "dsa-l0"), make("span", "", "not read"), ...[1, 2, 3, 4].map((level) => make("i", `dsa-l${level}`)), make("span", "", "read, from weakest to strongest"));
  const section = (title, hint, ...children) => {
    const box = make("section", "dsa-section");
    const heading = make("h3", "", title);
    const explanation = make("p", "dsa-explanation", hint);
    explanation.hidden = true;
    const button = make("button", "dsa-hint", "?");
    button.type = "button";
    button.setAttribute("aria-label", `About “${title}”`);
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      explanation.hidden = !explanation.hidden;
      button.setAttribute("aria-expanded", String(!explanation.hidden));
    });
    heading.append(button);
    box.append(heading, explanation, ...children);
    return box;
  };
  const experiment = source.replay ? mountExperiment(source, { texts: header.texts, control, header, make, onChange: () => draw() }) : null;
  const experts = make("details", "dsa-experts");
  experts.append(
    make("summary", "", "For experts"),
    head,
    section("Tokens", "Each token was written after reading only the selected part of the context. Pick one token, or none to see all of them together.", tokens, slider, draftNote),
    section("Strongest passages", "Sentences before the question, ordered by the indexer's scores of their tokens: 1 is the strongest token of the context, 0 the weakest one that was selected. The score decides what attention reads, not how much weight attention gives it.", passages),
  );
  if (experiment) experts.append(section("Change something", "Answer again with another selection, and compare. “From the question on” changes what the question and the answer read, over the same cache; “everywhere” also computes the whole conversation anew.", experiment.box));
  if (!isShort) experts.append(section("Layers and positions", "One row for each layer, the conversation from left to right. The colour shows how strongly the layer's indexer scored the tokens that it selected there. Click a row to look at one layer.", layers, canvas, ticks, heatNote, heatTable));
  experts.append(
    section("Dense attention's mass that the selection catches", "Dense attention would spread its weight over all tokens. This is the share of that weight which falls on the selected tokens, for groups of attention heads: near 100 % means that leaving out the others changed little. It is measured by computing the answer once more.", mass),
    section("The conversation, shaded", "The darker a token, the higher the indexer scored it among those it selected. Tokens without colour were not read by attention; the indexer itself scores every token, at a fraction of the cost.", legend, text),
  );
  root.append(steps.box, experts);
  let measuring = false;
  experts.addEventListener("toggle", () => {
    if (!experts.open) return;
    draw();
    if (measuring) return;
    measuring = true;
    source.mass().then((value) => {
      state.mass = value || { missing: true };
      drawMass(mass, { header, mass: state.mass, token: state.token, layer: state.layer });
    });
  });
  let at = () => null;
  const back = (position) => `${grouped(state.length - position)} tokens back`;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const spot = at(event.clientX - box.left, event.clientY - box.top);
    if (spot) heatNote.textContent = `Layer ${spot.layer + 1}, tokens ${grouped(spot.from)}–${grouped(spot.to)}, ${back(spot.from)}: ${spot.read} of ${spot.to - spot.from + 1} read, strongest ${spot.share.toFixed(2)}`;
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
    heatNote.textContent = `positions 0 to ${grouped(state.length - 1)}; the question begins at ${grouped(header.question)}`;
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

  function showWord(word) {
    steps.draw(word);
    if (word && word.passage) state.layer = word.layer;
    pick(word ? (word.token ?? word.tokens[0]) : null);
    if (source.shade) source.shade(word);
  }

  function setLayer(layer) {
    state.layer = layer;
    draw();
  }

  function draw() {
    if (!state.layers || !experts.open) return;
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
    chips.forEach((chip, i) => {
      chip.classList.toggle("dsa-picked", i === state.token);
      chip.setAttribute("aria-pressed", String(i === state.token));
    });
    slider.value = state.token === null ? 0 : state.token + 1;
    for (const [layer, button] of layerButtons) {
      if (layer === null) button.value = state.layer;
      else {
        button.classList.toggle("dsa-picked", layer === state.layer);
        button.setAttribute("aria-pressed", String(layer === state.layer));
      }
    }
    drawFigure();
    if (!isShort) drawHeat();
    describeHeat();
    drawMass(mass, { header, mass: state.mass, token: state.token, layer: state.layer });
    const { counts, strengths, peak, of, length } = state;
    const shown = { counts, strengths, peak, of, length };
    const told = (header.words.find((word) => word.token === state.token && word.layer === state.layer) || {}).passage;
    const best = drawPassages(passages, { header, first: told, experiment }, shown, scrollToToken);
    drawText(text, { texts: header.texts, control }, shown);
    if (best) scrollToToken(best.from, false);
  }

  function drawFigure() {
    const whole = state.token === null;
    const share = whole ? header.read / header.dense : header.shares[state.token];
    figure.replaceChildren(
      make("strong", "", percent(share), "tokens that attention read, over the tokens that dense attention would have read; mean over the layers"),
      make("span", "", whole ? "of the context read, against dense attention" : `of ${grouped(state.length)} tokens read for “${tokenText(state.token)}”`),
      make("small", "dsa-bytes", describeBytes(header, state.token, share, state.length)),
    );
    plot.replaceChildren(sharePlot(header.shares, state.token, (i) => i < header.recorded && pick(i)),
      make("div", "dsa-note", header.recorded < header.shares.length ? `first ${header.recorded} of ${header.shares.length} tokens recorded` : "share of the context read, token by token; dashed: dense attention"),
      tableOf("Share of the context read", ["token", "share"], header.shares.map((each, i) => [header.texts[header.prompt_tokens + i].trim() || "␣", percent(each)])));
  }

  function scrollToToken(position, flash = true) {
    const spans = [...text.querySelectorAll("[data-from]")];
    const target = spans.filter((span) => +span.dataset.from <= position).pop() || spans[0];
    if (!target) return;
    text.scrollTop += target.getBoundingClientRect().top - text.getBoundingClientRect().top - 60;
    if (flash) target.animate([{ outline: "2px solid currentColor" }, { outline: "2px solid transparent" }], 900);
  }

  function drawHeat() {
    if (!state.layers) return;
    at = drawHeatMap(canvas, { layers: state.layers, length: state.length, layer: state.layer });
    drawHeatTable();
    ticks.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((part) => make("span", "", grouped(Math.round(part * (state.length - 1))))));
  }

  let tabled = null; // the layers of the table, which stays as it is, and open, while only the size changes
  function drawHeatTable() {
    if (tabled === state.layers) return;
    tabled = state.layers;
    const tenth = (i) => Math.round((i * state.length) / 10);
    heatTable.replaceChildren(tableOf("Tokens read, by tenths of the conversation", ["layer", ...[...Array(10).keys()].map((i) => `${i * 10} %`)],
      state.layers.map(({ counts }, layer) => [`layer ${layer + 1}`, ...[...Array(10).keys()].map((i) => grouped(counts.slice(tenth(i), tenth(i + 1)).filter(Boolean).length))])));
  }
  if (window.ResizeObserver) new ResizeObserver(() => experts.open && !isShort && drawHeat()).observe(experts);
  const first = story && header.words.find((word) => word.token === story.token);
  showWord(first || null);
  return { pick, setLayer, redraw: draw };
}

function mountReport(root, report) {
  const source = { header: report, selection: async (i) => report.selections[i], totals: async () => report.totals, mass: async () => report.mass };
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  root.prepend(make("h1", "", "What DeepSeek Sparse Attention read"));
  const body = make("div");
  root.append(body);
  return mountInspector(body, source);
}

// The inspector: shades the context by what the indexer selected for one token of the answer, or for the whole answer.

// source: {header, selection(i), totals(), mass()} → Promises of what recording.Recording returns; in the chat, also
// {replay(change, onProgress)}, which answers again under a changed selection, and {pad, show, shade}.
function mountInspector(root, source) {
  const { header } = source;
  const control = new Set(header.control);
  const state = { token: null, layer: "all", length: 0, request: 0, mass: null };
  const isShort = header.prompt_tokens + header.recorded <= header.index_topk;
  const steps = mountSteps(source, control, showWord);
  const figure = make("div", "dsa-figure");
  const plot = make("div", "dsa-plot-box");

  const drafted = new Set(header.drafted);
  const chips = header.shares.map((share, i) => {
    const chip = button("dsa-token", answerToken(header, control, i), "", () => pick(state.token === i ? null : i));
    chip.disabled = i >= header.recorded;
    chip.title = chip.disabled ? "not recorded: the recording's memory was full" : `token ${i + 1}: read ${percent(share)} of its context`;
    if (drafted.has(i)) {
      chip.classList.add("dsa-drafted");
      chip.title += "; guessed by the draft layer and confirmed";
    }
    return chip;
  });
  const tokens = nest("div", "dsa-tokens", ...chips);
  tokens.title = "Pick a token to see what the model read just before writing it";
  const draftNote = make("div", "dsa-note", "underlined: guessed by the draft layer, and confirmed");
  draftNote.hidden = !drafted.size;
  const slider = make("input", "dsa-slider");
  Object.assign(slider, { type: "range", min: 0, max: header.recorded, value: 0 });
  slider.setAttribute("aria-label", "Token of the answer; at the left end, the whole answer");
  slider.addEventListener("input", () => pick(+slider.value ? +slider.value - 1 : null));

  const layerNames = ["all", ...Array(header.layers).keys()].map((layer) =>
    layer === "all" ? [layer, "All layers", "The mean of all layers"] : [layer, `Layer ${layer + 1}`, `Only what layer ${layer + 1} selected`]);
  const layers = header.layers <= 8 ? choices("dsa-layers", "Layer", layerNames, "all", setLayer) : layerList(layerNames, setLayer);
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
  const legend = nest("div", "dsa-legend", make("i", "dsa-l0"), make("span", "", "not read"), ...[1, 2, 3, 4].map((level) => make("i", `dsa-l${level}`)), make("span", "", "read, from weakest to strongest"));
  const experiment = source.replay ? mountExperiment(source, control, draw) : null;
  const experts = nest("details", "dsa-experts", make("summary", "", "For experts"), nest("section", "dsa-head", figure, plot));
  const section = (title, hint, ...children) => {
    const explanation = make("p", "dsa-explanation", hint);
    explanation.hidden = true;
    const about = button("dsa-hint", "?", "", () => {
      explanation.hidden = !explanation.hidden;
      about.setAttribute("aria-expanded", String(!explanation.hidden));
    });
    about.setAttribute("aria-label", `About “${title}”`);
    about.setAttribute("aria-expanded", "false");
    experts.append(nest("section", "dsa-section", nest("h3", "", title, about), explanation, ...children));
  };
  section("Tokens", "Each token was written after reading only the selected part of the context. Pick one token, or none to see all of them together.", tokens, slider, draftNote);
  section("Strongest passages", "Sentences before the question, ordered by the indexer's scores of their tokens: 1 is the strongest token of the context, 0 the weakest one that was selected. The score decides what attention reads, not how much weight attention gives it.", passages);
  if (experiment) section("Change something", "Answer again with another selection, and compare. “From the question on” changes what the question and the answer read, over the same cache; “everywhere” also computes the whole conversation anew.", experiment.box);
  if (!isShort) section("Layers and positions", "One row for each layer, the conversation from left to right. The colour shows how strongly the layer's indexer scored the tokens that it selected there. Click a row to look at one layer.", layers, canvas, ticks, heatNote, heatTable);
  section("Dense attention's mass that the selection catches", "Dense attention would spread its weight over all tokens. This is the share of that weight which falls on the selected tokens, for groups of attention heads: near 100 % means that leaving out the others changed little. It is measured by computing the answer once more.", mass);
  section("The conversation, shaded", "The darker a token, the higher the indexer scored it among those it selected. Tokens without colour were not read by attention; the indexer itself scores every token, at a fraction of the cost.", legend, text);
  root.classList.add("dsa");
  root.append(steps.box, experts);

  let measuring = false;
  experts.addEventListener("toggle", () => {
    if (!experts.open) return;
    draw();
    if (measuring) return;
    measuring = true;
    source.mass().then((value) => {
      state.mass = value || { missing: true };
      measuring = value !== undefined; // the server was reached
      drawMass(mass, { header, ...state });
    });
  });
  let placeAt = () => null; // of a point of the heat map
  const spotOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return placeAt(event.clientX - box.left, event.clientY - box.top);
  };
  canvas.addEventListener("mousemove", (event) => {
    const spot = spotOf(event);
    if (spot) heatNote.textContent = `Layer ${spot.layer + 1}, tokens ${grouped(spot.from)}–${grouped(spot.to)}, ${grouped(state.length - spot.from)} tokens back: ${spot.read} of ${spot.to - spot.from + 1} read, strongest ${spot.share.toFixed(2)}`;
  });
  canvas.addEventListener("mouseleave", describeHeat);
  canvas.addEventListener("click", (event) => {
    const spot = spotOf(event);
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
    if (request !== state.request) return;
    if (data) Object.assign(state, { token, length: data.position + 1, layers: readLayers(data, token === null) });
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
    const { length, token, layer } = state;
    const chosen = layer === "all" ? state.layers : [state.layers[layer]];
    const of = chosen.length * (token === null ? header.recorded : 1);
    const counts = new Uint32Array(length);
    const strengths = new Float32Array(length); // mean over the layers
    for (const each of chosen) {
      for (let s = 0; s < length; s++) {
        counts[s] += each.counts[s];
        strengths[s] += each.strengths[s] / chosen.length;
      }
    }
    // The first token attracts attention whatever it says (an attention sink), so it does not set the scale.
    const peak = strengths.slice(1).reduce((most, each) => Math.max(most, each), 1e-6);
    chips.forEach((chip, i) => press(chip, i === token));
    slider.value = token === null ? 0 : token + 1;
    layers.mark(layer);
    drawFigure();
    if (!isShort) drawHeat();
    describeHeat();
    drawMass(mass, { header, ...state });
    const shown = { counts, strengths, peak, of, length };
    const told = (header.words.find((word) => word.token === token && word.layer === layer) || {}).passage;
    const best = drawPassages(passages, { header, first: told, experiment }, shown, scrollToToken);
    drawText(text, { texts: header.texts, control }, shown);
    if (best) scrollToToken(best[0], false);
  }

  function drawFigure() {
    const { token } = state;
    const share = token === null ? header.read / header.dense : header.shares[token];
    const shown = header.shares.map((_, i) => header.texts[header.prompt_tokens + i].trim() || "␣");
    figure.replaceChildren(
      make("strong", "", percent(share), "tokens that attention read, over the tokens that dense attention would have read; mean over the layers"),
      make("span", "", token === null ? "of the context read, against dense attention" : `of ${grouped(state.length)} tokens read for “${shown[token]}”`),
      make("small", "dsa-bytes", describeBytes(header, token, share, state.length)),
    );
    plot.replaceChildren(sharePlot(header.shares, token, (i) => i < header.recorded && pick(i)),
      make("div", "dsa-note", header.recorded < header.shares.length ? `first ${header.recorded} of ${header.shares.length} tokens recorded` : "share of the context read, token by token; dashed: dense attention"),
      tableOf("Share of the context read", [["token", "share"], ...header.shares.map((each, i) => [shown[i], percent(each)])]));
  }

  function scrollToToken(position, flash = true) {
    const spans = [...text.querySelectorAll("[data-from]")];
    const target = spans.filter((span) => +span.dataset.from <= position).pop() || spans[0];
    if (!target) return;
    text.scrollTop += target.getBoundingClientRect().top - text.getBoundingClientRect().top - 60;
    if (flash) target.animate([{ outline: "2px solid currentColor" }, { outline: "2px solid transparent" }], 900);
  }

  let tabled = null; // the layers of the table, which stays as it is, and open, while only the size changes
  function drawHeat() {
    if (!state.layers) return;
    placeAt = drawHeatMap(canvas, state);
    ticks.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((part) => make("span", "", grouped(Math.round(part * (state.length - 1))))));
    if (tabled === state.layers) return;
    tabled = state.layers;
    const tenths = [...Array(10).keys()];
    const edge = (i) => Math.round((i * state.length) / 10);
    heatTable.replaceChildren(tableOf("Tokens read, by tenths of the conversation", [
      ["layer", ...tenths.map((i) => `${i * 10} %`)],
      ...state.layers.map(({ counts }, layer) => [`layer ${layer + 1}`, ...tenths.map((i) => grouped(counts.slice(edge(i), edge(i + 1)).filter(Boolean).length))]),
    ]));
  }
  new ResizeObserver(() => experts.open && !isShort && drawHeat()).observe(experts);
  showWord((header.story && header.words.find((word) => word.token === header.story.token)) || null);
  return { redraw: draw };
}

// A list in place of `choices`, for many layers.
function layerList(names, onPick) {
  const box = make("select", "dsa-layer");
  box.setAttribute("aria-label", "Layer");
  for (const [layer, name] of names) box.add(new Option(name, layer));
  box.addEventListener("change", () => onPick(box.value === "all" ? "all" : +box.value));
  box.mark = (layer) => (box.value = layer);
  return box;
}

function mountReport(root, report) {
  const source = { header: report, selection: async (i) => report.selections[i], totals: async () => report.totals, mass: async () => report.mass };
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const body = make("div");
  root.append(make("h1", "", "What DeepSeek Sparse Attention read"), body);
  mountInspector(body, source);
}

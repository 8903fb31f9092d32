// The inspector's experiment: a changed selection, and the two answers side by side.
const SELECTORS = [
  ["indexer", "Indexer", "the model's own selection"],
  ["window", "Window", "the newest k tokens"],
  ["dense", "Dense", "every token, as in DeepSeek-V3"],
  ["wrong_rope", "RoPE bug", "the indexer with its RoPE interleaved, as early public code had it"],
];
const KINDS = [
  ["forbidden", "Forbid", "Hide this passage from the question and the answer"],
  ["pinned", "Pin", "Always select this passage"],
];
const PLACES = [
  [false, "From the question on", "Only the question and the answer read otherwise"],
  [true, "Everywhere", "Every token reads otherwise: the whole conversation is computed anew"],
];

// Returns {box, buttons(passage)}: the controls with their result, and the two buttons next to a passage.
function mountExperiment(source, control, onChange) {
  const { header } = source;
  const change = { selector: "indexer", topk: header.index_topk, forbidden: [], pinned: [], everywhere: false };
  const sizes = [header.index_topk];
  for (let size = 16; size < header.prompt_tokens; size *= 2) if (size !== header.index_topk) sizes.push(size);
  sizes.sort((a, b) => a - b);
  const quote = (span, length) => header.texts.slice(...span).join("").trim().slice(0, length);
  const line = (name, ...children) => nest("div", "dsa-line-of", make("span", "", name), ...children);
  const k = make("input", "dsa-k");
  Object.assign(k, { type: "range", min: 0, max: sizes.length, value: sizes.indexOf(header.index_topk) });
  k.setAttribute("aria-label", "Tokens that each query selects");
  const kText = make("output");
  const setK = () => {
    change.topk = sizes[+k.value] ?? null;
    const isAll = change.selector === "dense" || change.topk === null;
    kText.textContent = isAll ? "all" : `${grouped(change.topk)}${change.topk === header.index_topk ? " (the model's)" : ""}`;
  };
  k.addEventListener("input", setK);
  setK();
  const spans = make("div", "dsa-spans");
  const selectors = choices("dsa-choices", "Selector", SELECTORS, "indexer", (value) => {
    change.selector = value;
    k.disabled = value === "dense";
    setK();
  });
  const box = nest("div", "dsa-experiment",
    line("Selector", selectors),
    line("Tokens read", k, kText),
    line("Passages", spans),
    line("Where", choices("dsa-choices", "Where", PLACES, false, (value) => (change.everywhere = value))),
    ...replayer(source, change, "", "Answer again", "dsa-result", (found) => comparison(header, control, found)),
  );

  function drawSpans() {
    const chips = KINDS.flatMap(([kind]) => change[kind].map((span) => {
      const chip = button(`dsa-span dsa-${kind}`, `${kind}: ${quote(span, 32)}…`, "Take this back", () => toggle(kind, span));
      chip.append(make("i", "", " ×"));
      return chip;
    }));
    spans.replaceChildren(...(chips.length ? chips : [make("span", "dsa-note", "forbid or pin one in the list above")]));
  }
  const isIn = (kind, span) => change[kind].some(([from]) => from === span[0]);
  function toggle(kind, span) {
    const had = isIn(kind, span);
    for (const [each] of KINDS) change[each] = change[each].filter(([from]) => from !== span[0]);
    if (!had) change[kind].push(span);
    drawSpans();
    onChange();
  }
  function buttons(span) {
    return nest("div", "dsa-passage-buttons", ...KINDS.map(([kind, name, title]) => {
      const made = button("dsa-layer", name, title, () => toggle(kind, span));
      press(made, isIn(kind, span));
      made.setAttribute("aria-label", `${name}: ${quote(span, 60)}`);
      return made;
    }));
  }
  drawSpans();
  return { box, buttons };
}

// found: {text, same, before, after, seconds}: the new answer; log-probabilities of the recorded answer's tokens.
function comparison(header, control, found) {
  const column = (title, child) => nest("div", "dsa-column", make("h4", "", title), child);
  const original = make("div", "dsa-tokens dsa-compared");
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const changes = found.after.map((value, i) => value - found.before[i]);
  const texts = changes.map((_, i) => answerToken(header, control, i));
  changes.forEach((value, i) => {
    const chip = make("span", "dsa-change", texts[i], `log-probability ${fixed(found.before[i])} → ${fixed(found.after[i])}`);
    chip.style.setProperty("--less", Math.min(1, Math.max(0, -value) / 6));
    chip.style.setProperty("--more", Math.min(1, Math.max(0, value) / 6));
    chip.append(make("small", "", signed(value)));
    original.append(chip);
  });
  const most = changes.reduce((best, value, i) => (texts[i] !== "␣" && Math.abs(value) > Math.abs(changes[best]) ? i : best), 0);
  return [
    make("p", "dsa-verdict", `${found.same ? "The same answer" : "A different answer"} after ${found.seconds.toFixed(2)} s. The recorded answer's log-probability: ${fixed(sum(found.before))} → ${fixed(sum(found.after))}; most changed: “${texts[most].trim()}”, ${signed(changes[most])}.`),
    nest("div", "dsa-columns",
      column("As recorded; below each token, the change of its log-probability", original),
      column("With the change", make("div", "dsa-tokens dsa-altered", found.text || "(nothing)"))),
  ];
}

const fixed = (value) => value.toFixed(2).replace("-", "−");
const signed = (value) => (Math.abs(value) < 0.005 ? "0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) < 10 ? 2 : 0)}`);

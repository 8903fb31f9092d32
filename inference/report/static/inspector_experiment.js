// The inspector's experiment: a changed selection, and the two answers side by side.
"use strict";

const SELECTORS = [
  ["indexer", "Indexer", "the model's own selection"],
  ["window", "Window", "the newest k tokens"],
  ["dense", "Dense", "every token, as in DeepSeek-V3"],
  ["wrong_rope", "RoPE bug", "the indexer with its RoPE interleaved, as early public code had it"],
];

// Returns {box, buttons(passage)}: the controls with their result, and the two buttons next to a passage.
function mountExperiment(source, { header, onChange }) {
  const change = { selector: "indexer", topk: header.index_topk, forbidden: [], pinned: [], everywhere: false };
  const box = make("div", "dsa-experiment");
  const sizes = [];
  for (let size = 16; size < header.prompt_tokens; size *= 2) sizes.push(size);
  if (!sizes.includes(header.index_topk)) sizes.push(header.index_topk);
  sizes.sort((a, b) => a - b);

  const group = (label, choices, value, onPick) => {
    const row = make("div", "dsa-choices");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", label);
    const buttons = choices.map(([key, name, title]) => {
      const button = make("button", "dsa-layer", name, title);
      button.type = "button";
      button.addEventListener("click", () => {
        onPick(key);
        mark(key);
      });
      row.append(button);
      return [key, button];
    });
    const mark = (chosen) => buttons.forEach(([key, button]) => {
      button.classList.toggle("dsa-picked", key === chosen);
      button.setAttribute("aria-pressed", String(key === chosen));
    });
    mark(value);
    return row;
  };
  const line = (name, ...children) => {
    const row = make("div", "dsa-line-of");
    row.append(make("span", "", name), ...children);
    return row;
  };
  const k = make("input", "dsa-k");
  Object.assign(k, { type: "range", min: 0, max: sizes.length, value: sizes.indexOf(header.index_topk) });
  k.setAttribute("aria-label", "Tokens that each query selects");
  const kText = make("output", "");
  const setK = () => {
    change.topk = sizes[+k.value] ?? null;
    kText.textContent = change.selector === "dense" ? "all" : change.topk === null ? "all" : `${grouped(change.topk)}${change.topk === header.index_topk ? " (the model's)" : ""}`;
  };
  k.addEventListener("input", setK);
  setK();
  const spans = make("div", "dsa-spans");
  const run = make("button", "dsa-run", "Answer again");
  run.type = "button";
  const progress = make("progress", "dsa-progress");
  progress.hidden = true;
  const result = make("div", "dsa-result");
  result.setAttribute("aria-live", "polite");
  box.append(
    line("Selector", group("Selector", SELECTORS, "indexer", (value) => {
      change.selector = value;
      k.disabled = value === "dense";
      setK();
    })),
    line("Tokens read", k, kText),
    line("Passages", spans),
    line("Where", group("Where", [[false, "From the question on", "Only the question and the answer read otherwise"], [true, "Everywhere", "Every token reads otherwise: the whole conversation is computed anew"]], false, (value) => (change.everywhere = value))),
    run, progress, result,
  );

  const same = (a, b) => a[0] === b[0];
  function drawSpans() {
    const chip = (kind, name) => (span) => {
      const button = make("button", `dsa-span dsa-${kind}`, `${name}: ${header.texts.slice(...span).join("").trim().slice(0, 32)}…`, "Take this back");
      button.append(make("i", "", " ×"));
      button.type = "button";
      button.addEventListener("click", () => toggle(kind, span));
      return button;
    };
    const chips = [...change.forbidden.map(chip("forbidden", "forbidden")), ...change.pinned.map(chip("pinned", "pinned"))];
    spans.replaceChildren(...(chips.length ? chips : [make("span", "dsa-note", "forbid or pin one in the list above")]));
  }
  function toggle(kind, span) {
    for (const each of ["forbidden", "pinned"]) {
      const had = change[each].some((other) => same(other, span));
      change[each] = change[each].filter((other) => !same(other, span));
      if (each === kind && !had) change[each].push(span);
    }
    drawSpans();
    onChange();
  }
  function buttons(span) {
    const row = make("div", "dsa-passage-buttons");
    for (const [kind, name, title] of [["forbidden", "Forbid", "Hide this passage from the question and the answer"], ["pinned", "Pin", "Always select this passage"]]) {
      const on = change[kind].some((other) => same(other, span));
      const button = make("button", `dsa-layer${on ? " dsa-picked" : ""}`, name, title);
      button.type = "button";
      button.setAttribute("aria-pressed", String(on));
      button.setAttribute("aria-label", `${name}: ${header.texts.slice(...span).join("").trim().slice(0, 60)}`);
      button.addEventListener("click", () => toggle(kind, span));
      row.append(button);
    }
    return row;
  }

  run.addEventListener("click", async () => {
    run.disabled = true;
    progress.hidden = false;
    progress.removeAttribute("value");
    try {
      const found = await source.replay(change, (share) => (progress.value = share));
      drawComparison(result, header, found);
    } catch (error) {
      result.replaceChildren(make("p", "dsa-problem", "The experiment failed: no answer came from the server."));
    }
    progress.hidden = true;
    run.disabled = false;
  });
  drawSpans();
  return { box, buttons };
}

// found: {error} or {text, tokens, before, after, seconds, changed}: the new answer; log-probabilities of the recorded answer's tokens.
function drawComparison(box, header, found) {
  if (!found || found.error) return box.replaceChildren(make("p", "dsa-problem", (found && found.error) || "The recording is no longer there."));
  const column = (title, ...children) => {
    const part = make("div", "dsa-column");
    part.append(make("h4", "", title), ...children);
    return part;
  };
  const original = make("div", "dsa-tokens dsa-compared");
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const changes = found.after.map((value, i) => value - found.before[i]);
  const control = new Set(header.control);
  const texts = changes.map((_, i) => {
    const text = header.texts[header.prompt_tokens + i];
    return control.has(header.prompt_tokens + i) ? controlName(text) : text.trim() ? text.replace(/\n/g, "⏎") : "␣";
  });
  changes.forEach((value, i) => {
    const chip = make("span", "dsa-change", texts[i]);
    chip.style.setProperty("--less", Math.min(1, Math.max(0, -value) / 6));
    chip.style.setProperty("--more", Math.min(1, Math.max(0, value) / 6));
    chip.append(make("small", "", signed(value)));
    chip.title = `log-probability ${fixed(found.before[i])} → ${fixed(found.after[i])}`;
    original.append(chip);
  });
  const most = changes.reduce((best, value, i) => (texts[i] !== "␣" && Math.abs(value) > Math.abs(changes[best]) ? i : best), 0);
  box.replaceChildren(
    make("p", "dsa-verdict", `${found.same ? "The same answer" : "A different answer"} after ${found.seconds.toFixed(2)} s. The recorded answer's log-probability: ${fixed(sum(found.before))} → ${fixed(sum(found.after))}; most changed: “${texts[most].trim()}”, ${signed(changes[most])}.`),
  );
  const columns = make("div", "dsa-columns");
  columns.append(
    column("As recorded; below each token, the change of its log-probability", original),
    column("With the change", make("div", "dsa-tokens dsa-altered", found.text || "(nothing)")),
  );
  box.append(columns);
}

const fixed = (value) => value.toFixed(2).replace("-", "−");
const signed = (value) => (Math.abs(value) < 0.005 ? "0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) < 10 ? 2 : 0)}`);

// The inspector's texts: the shaded context and its strongest passages.
"use strict";

const INSPECTOR_GAP = 48; // a longer run of unread tokens is folded, except for its ends
const INSPECTOR_EDGE = 14; // tokens left at each end of a fold
const TOP_PASSAGES = 5;

function inspectorBytes(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function countsOfBitmap(text, length) {
  const bytes = inspectorBytes(text);
  const counts = new Uint16Array(length);
  for (let s = 0; s < length; s++) counts[s] = (bytes[s >> 3] >> (s & 7)) & 1;
  return counts;
}

function countsOfTotals(text) {
  const bytes = inspectorBytes(text);
  return new Uint16Array(bytes.buffer);
}

// The selection of one token or of the whole answer: for each layer the counts and the strengths (0..1) of all positions.
function readLayers(data, whole) {
  const length = data.position + 1;
  return data.layers.map((row, layer) => {
    if (whole) {
      const [peak, shares] = data.strengths[layer];
      return { counts: countsOfTotals(row), strengths: Float32Array.from(inspectorBytes(shares), (share) => (peak * share) / 255) };
    }
    const counts = countsOfBitmap(row, length);
    const given = inspectorBytes(data.strengths[layer]);
    const strengths = new Float32Array(length);
    for (let s = 0, k = 0; s < length; s++) if (counts[s]) strengths[s] = given[k++] / 255;
    return { counts, strengths, scores: data.scores[layer] };
  });
}

function make(tag, className, text, title) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (title) element.title = title;
  return element;
}

const percent = (share) => (share >= 0.0995 ? `${Math.round(share * 100)} %` : `${(share * 100).toFixed(1)} %`);
const grouped = (number) => number.toLocaleString("en-US");

const controlName = (text) => text.replace(/[<>｜|]/g, "").replace(/▁/g, " ");

// The passage's score: the mean of its three strongest tokens, as a share of the strongest in the context.
function passageScore(passage, strengths, peak) {
  const best = Array.from(strengths.slice(passage.from, passage.to)).sort((a, b) => b - a).slice(0, 3);
  return best.reduce((sum, strength) => sum + strength, 0) / (3 * peak);
}

// Fills the list with the strongest passages and returns the first. The answer itself and the question, which is the prompt's last
// passage, are left out, because the newest tokens always read them. `first`: the passage of the story, which leads the list.
function drawPassages(list, { header, first, experiment }, { counts, strengths, peak, of, length }, onPick) {
  const { texts } = header;
  const best = header.passages
    .slice(0, -1)
    .filter(([, to]) => to <= length)
    .map(([from, to]) => ({ from, to, score: passageScore({ from, to }, strengths, peak), leads: Boolean(first) && from === first[0] }))
    .filter((passage) => passage.score > 0 || passage.leads)
    .sort((a, b) => b.leads - a.leads || b.score - a.score)
    .slice(0, TOP_PASSAGES);
  list.replaceChildren(...best.map((passage) => {
    const reads = counts.slice(passage.from, passage.to).reduce((sum, count) => sum + count, 0);
    const item = make("li", "dsa-passage");
    const button = make("button", "dsa-show");
    button.type = "button";
    const bar = make("i", "dsa-bar");
    bar.style.setProperty("--share", passage.score);
    const words = make("span", "dsa-words", texts.slice(passage.from, passage.to).join("").trim());
    const place = `${grouped(length - passage.from)} tokens back, at ${grouped(passage.from)}–${grouped(passage.to - 1)} · ${percent(reads / (of * (passage.to - passage.from)))} read`;
    button.append(make("b", "", passage.score.toFixed(2)), bar, words, make("small", "dsa-place", place));
    button.addEventListener("click", () => onPick(passage.from));
    item.append(button);
    if (experiment) item.append(experiment.buttons([passage.from, passage.to]));
    return item;
  }));
  return best[0];
}

// The shaded text of the context; long stretches that were not read are folded.
function drawText(box, { texts, control }, { counts, strengths, peak, of, length }) {
  const level = (s) => (counts[s] ? Math.min(4, 1 + Math.floor((4 * strengths[s]) / peak)) : 0);
  const pieces = document.createDocumentFragment();
  const put = (from, to, className) => {
    const span = make("span", className, texts.slice(from, to).join(""));
    span.dataset.from = from;
    if (className) span.title = `tokens ${grouped(from)}–${grouped(to - 1)}: in ${counts[from]} of ${of} selections, strength ${(strengths[from] / peak).toFixed(2)}`;
    pieces.append(span);
  };
  for (let s = 0; s < length; ) {
    if (control.has(s)) {
      const mark = make("span", `dsa-control dsa-l${level(s)}`, controlName(texts[s]));
      mark.dataset.from = s++;
      pieces.append(mark);
      continue;
    }
    let end = s;
    while (end < length && !control.has(end) && level(end) === level(s)) end++;
    if (level(s)) put(s, end, `dsa-l${level(s)}`);
    else if (end - s <= INSPECTOR_GAP) put(s, end, "");
    else {
      const [from, to] = [s + INSPECTOR_EDGE, end - INSPECTOR_EDGE];
      put(s, from, "");
      const fold = make("button", "dsa-fold", `… ${grouped(to - from)} tokens not read …`);
      fold.type = "button";
      fold.addEventListener("click", () => fold.replaceWith(texts.slice(from, to).join("")));
      pieces.append(fold);
      put(to, end, "");
    }
    s = end;
  }
  box.replaceChildren(pieces);
}

// The words in the inspector: the shaded context and its most read passages.
"use strict";

const INSPECTOR_GAP = 48; // unread tokens in a row that are folded away, but for their ends
const INSPECTOR_EDGE = 14; // tokens left at each end of a fold
const PASSAGE_LENGTH = 40; // tokens; a longer sentence counts as several passages
const TOP_PASSAGES = 6;

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

// Sentences, or pieces of long ones: [{from, to}], control tokens left out.
function passagesOf(texts, control, length) {
  const passages = [];
  let from = 0;
  const close = (to) => {
    if (to > from && texts.slice(from, to).join("").trim()) passages.push({ from, to });
    from = to;
  };
  for (let s = 0; s < length; s++) {
    if (control.has(s)) {
      close(s);
      from = s + 1;
    } else if (/[.!?。！？]["')]?\s*$|\n\s*$/.test(texts[s]) || s + 1 - from >= PASSAGE_LENGTH) {
      close(s + 1);
    }
  }
  close(length);
  return passages;
}

// Fills the list with the most read passages and returns the first. What always ranks high is left out: the answer itself,
// and the end of the question, which the newest tokens read as a matter of course.
function drawPassages(list, { texts, control, prompt }, { counts, of, length }, onPick) {
  const earlier = passagesOf(texts, control, Math.min(prompt, length)).slice(0, -1);
  const scored = earlier.map((passage) => {
    let reads = 0;
    for (let s = passage.from; s < passage.to; s++) reads += counts[s];
    // A few tokens' worth of doubt keeps one-word passages from the top.
    return { ...passage, share: reads / (of * (passage.to - passage.from)), rank: reads / (passage.to - passage.from + 3) };
  });
  const best = scored.filter((passage) => passage.rank > 0).sort((a, b) => b.rank - a.rank).slice(0, TOP_PASSAGES);
  list.replaceChildren(...best.map((passage) => {
    const item = make("li", "dsa-passage");
    const button = make("button", "", undefined, `tokens ${grouped(passage.from)}–${grouped(passage.to - 1)}`);
    button.type = "button";
    const bar = make("i", "dsa-bar");
    bar.style.setProperty("--share", passage.share);
    button.append(make("b", "", percent(passage.share)), bar, make("span", "", texts.slice(passage.from, passage.to).join("").trim()));
    button.addEventListener("click", () => onPick(passage.from));
    item.append(button);
    return item;
  }));
  return best[0];
}

// The context as text, shaded; long stretches that were not read are folded.
function drawText(box, { texts, control }, { counts, of, length }) {
  const level = (s) => (counts[s] ? Math.ceil((4 * counts[s]) / of) : 0);
  const pieces = document.createDocumentFragment();
  const put = (from, to, className) => {
    const span = make("span", className, texts.slice(from, to).join(""));
    span.dataset.from = from;
    if (className) span.title = `tokens ${grouped(from)}–${grouped(to - 1)}: ${counts[from]} of ${of} selections`;
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

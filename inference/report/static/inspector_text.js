// The inspector's texts: the shaded context and its strongest passages.
const INSPECTOR_GAP = 48; // a longer run of unread tokens is folded, except for its ends
const INSPECTOR_EDGE = 14; // tokens left at each end of a fold
const TOP_PASSAGES = 5;

const inspectorBytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

// The selection of one token or of the whole answer: for each layer the counts and the strengths (0..1) of all positions.
function readLayers(data, whole) {
  const length = data.position + 1;
  return data.layers.map((row, layer) => {
    const bytes = inspectorBytes(row);
    if (whole) {
      const [peak, shares] = data.strengths[layer];
      return { counts: new Uint16Array(bytes.buffer), strengths: Float32Array.from(inspectorBytes(shares), (share) => (peak * share) / 255) };
    }
    const counts = Uint16Array.from({ length }, (_, s) => (bytes[s >> 3] >> (s & 7)) & 1);
    const given = inspectorBytes(data.strengths[layer]);
    let k = 0;
    return { counts, strengths: Float32Array.from(counts, (count) => (count ? given[k++] / 255 : 0)) };
  });
}

const controlName = (text) => text.replace(/[<>｜|]/g, "").replace(/▁/g, " ");

// The token `i` of the answer, as a chip shows it.
function answerToken(header, control, i) {
  const at = header.prompt_tokens + i;
  const text = control.has(at) ? controlName(header.texts[at]) : header.texts[at].replace(/\n/g, "⏎");
  return text.trim() ? text : "␣";
}

// The passage's score: the mean of its three strongest tokens, as a share of the strongest in the context.
function passageScore([from, to], strengths, peak) {
  const best = Array.from(strengths.slice(from, to)).sort((a, b) => b - a).slice(0, 3);
  return best.reduce((sum, strength) => sum + strength, 0) / (3 * peak);
}

// Fills the list with the strongest passages and returns the first. The answer itself and the question, which is the prompt's last
// passage, are left out, because the newest tokens always read them. `first`: the passage of the story, which leads the list.
function drawPassages(list, { header, first, experiment }, { counts, strengths, peak, of, length }, onPick) {
  const best = header.passages
    .slice(0, -1)
    .filter(([, to]) => to <= length)
    .map((passage) => ({ passage, score: passageScore(passage, strengths, peak), leads: Boolean(first) && passage[0] === first[0] }))
    .filter(({ score, leads }) => score > 0 || leads)
    .sort((a, b) => b.leads - a.leads || b.score - a.score)
    .slice(0, TOP_PASSAGES);
  list.replaceChildren(...best.map(({ passage: [from, to], score }) => {
    const reads = counts.slice(from, to).reduce((sum, count) => sum + count, 0);
    const show = button("dsa-show", "", "", () => onPick(from));
    const bar = make("i", "dsa-bar");
    bar.style.setProperty("--share", score);
    const place = `${grouped(length - from)} tokens back, at ${grouped(from)}–${grouped(to - 1)} · ${percent(reads / (of * (to - from)))} read`;
    show.append(make("b", "", score.toFixed(2)), bar, make("span", "dsa-words", header.texts.slice(from, to).join("").trim()), make("small", "dsa-place", place));
    return nest("li", "dsa-passage", show, experiment ? experiment.buttons([from, to]) : "");
  }));
  return best.length ? best[0].passage : null;
}

// The shaded text of the context; long stretches that were not read are folded.
function drawText(box, { texts, control }, { counts, strengths, peak, of, length }) {
  const level = (s) => (counts[s] ? Math.min(4, 1 + Math.floor((4 * strengths[s]) / peak)) : 0);
  const pieces = document.createDocumentFragment();
  const put = (from, to, className, text = texts.slice(from, to).join("")) => {
    const span = make("span", className, text);
    span.dataset.from = from;
    if (className) span.title = `tokens ${grouped(from)}–${grouped(to - 1)}: in ${counts[from]} of ${of} selections, strength ${(strengths[from] / peak).toFixed(2)}`;
    pieces.append(span);
  };
  for (let s = 0; s < length; ) {
    let end = s + 1;
    if (control.has(s)) put(s, end, `dsa-control dsa-l${level(s)}`, controlName(texts[s]));
    else {
      while (end < length && !control.has(end) && level(end) === level(s)) end++;
      if (level(s)) put(s, end, `dsa-l${level(s)}`);
      else if (end - s <= INSPECTOR_GAP) put(s, end, "");
      else {
        const [from, to] = [s + INSPECTOR_EDGE, end - INSPECTOR_EDGE];
        put(s, from, "");
        const fold = button("dsa-fold", `… ${grouped(to - from)} tokens not read …`, "", () => fold.replaceWith(texts.slice(from, to).join("")));
        pieces.append(fold);
        put(to, end, "");
      }
    }
    s = end;
  }
  box.replaceChildren(pieces);
}

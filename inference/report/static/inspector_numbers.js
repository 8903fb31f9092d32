// The inspector's numbers: bytes read and saved, and how much of dense attention's mass the selection catches.
"use strict";

function sizeText(bytes) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) if (bytes >= size) return `${(bytes / size).toPrecision(3)} ${unit}`;
  return `${Math.round(bytes)} B`;
}

// Bytes of one layer's caches that were read for one token or for the whole answer: the latents of the selected tokens, and the
// index keys of all tokens where there was something to choose. Dense attention reads all latents.
function describeBytes(header, token, share, length) {
  const [latent, key] = header.entry_bytes;
  if (!latent) return "";
  const whole = token === null;
  const context = whole ? header.dense : length;
  const scored = whole ? header.indexed : length > header.index_topk ? length : 0;
  const read = share * context * latent + scored * key;
  const dense = context * latent;
  const saved = 1 - read / dense;
  const verdict = saved >= 0 ? `${percent(saved)} saved` : `${percent(-saved)} more`;
  return `${sizeText(read)} of ${sizeText(dense)} a layer, ${sizeText(scored * key)} of it index keys: ${verdict}`;
}

// mass: {shares: [token][layer][group of heads]}, null while it is computed, {missing} if it cannot be.
function drawMass(box, { header, mass, token, layer }) {
  if (!mass) return box.replaceChildren(make("div", "dsa-note", "measuring …"));
  if (mass.missing) return box.replaceChildren(make("div", "dsa-note", "not measured for this recording"));
  const rows = token === null ? mass.shares : [mass.shares[token]];
  const layers = layer !== "all" ? [layer] : header.layers <= 8 ? [...Array(header.layers).keys()] : ["all"];
  const groups = rows[0][0].length;
  const table = make("table");
  const top = make("tr");
  top.append(make("td"), ...[...Array(groups).keys()].map((group) => {
    const cell = make("th", "", groups === 1 ? "all heads" : `heads, group ${group + 1} of ${groups}`);
    cell.scope = "col";
    return cell;
  }));
  table.append(top);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  for (const one of layers) {
    const row = make("tr");
    const name = make("th", "", one === "all" ? "mean of layers" : `layer ${one + 1}`);
    name.scope = "row";
    row.append(name);
    for (let group = 0; group < groups; group++) {
      const share = mean(rows.map((token) => (one === "all" ? mean(token.map((groups) => groups[group])) : token[one][group])));
      const cell = make("td", "", percent(share));
      cell.style.setProperty("--share", share);
      row.append(cell);
    }
    table.append(row);
  }
  box.replaceChildren(table, make("div", "dsa-note", token === null ? "mean over the answer's tokens" : "for the picked token"));
}

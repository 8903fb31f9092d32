// The inspector's numbers: bytes read and saved, and how much of dense attention's mass the selection catches.
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
  if (!mass || mass.missing) return box.replaceChildren(make("div", "dsa-note", mass ? "not measured for this recording" : "measuring …"));
  const picked = token === null ? mass.shares : [mass.shares[token]];
  const layers = layer !== "all" ? [layer] : header.layers <= 8 ? [...Array(header.layers).keys()] : ["all"];
  const groups = [...picked[0][0].keys()];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const shares = layers.map((one) => groups.map((group) =>
    mean(picked.map((token) => (one === "all" ? mean(token.map((groups) => groups[group])) : token[one][group])))));
  const table = grid([
    ["", ...groups.map((group) => (groups.length === 1 ? "all heads" : `heads, group ${group + 1} of ${groups.length}`))],
    ...layers.map((one, row) => [one === "all" ? "mean of layers" : `layer ${one + 1}`, ...shares[row].map(percent)]),
  ]);
  shares.forEach((row, i) => row.forEach((share, j) => table.rows[i + 1].cells[j + 1].style.setProperty("--share", share)));
  box.replaceChildren(table, make("div", "dsa-note", token === null ? "mean over the answer's tokens" : "for the picked token"));
}

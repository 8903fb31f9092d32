// The inspector's two drawings: which layer read which positions, and how much of the context each answer token read.
"use strict";

function inspectorColour(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

// layers: {counts, strengths} over positions, for each layer. Groups the positions into at most `columns` bins, each with the
// strength of its strongest token and the number of tokens read.
function heatBins(layers, length, columns) {
  const perBin = Math.max(1, Math.ceil(length / columns));
  const width = Math.ceil(length / perBin);
  const bins = layers.map(({ counts, strengths }) => {
    const row = { strongest: new Float32Array(width), read: new Uint32Array(width) };
    for (let s = 0; s < length; s++) {
      const bin = Math.floor(s / perBin);
      if (!counts[s]) continue;
      row.read[bin]++;
      row.strongest[bin] = Math.max(row.strongest[bin], strengths[s]);
    }
    return row;
  });
  return { bins, perBin };
}

// Draws the heat map into a canvas; returns a function from a point of it to the layer and the tokens shown there.
function drawHeatMap(canvas, { layers, length, layer }) {
  const width = Math.max(120, canvas.clientWidth || 400);
  const rowHeight = Math.max(3, Math.min(18, Math.floor(170 / layers.length)));
  const gap = rowHeight > 8 ? 2 : 0;
  const height = layers.length * (rowHeight + gap);
  const scale = window.devicePixelRatio || 1;
  const { bins, perBin } = heatBins(layers, length, Math.floor(width / 2));
  const count = bins[0].read.length;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const hot = inspectorColour(canvas, "--dsa-hot-rgb");
  const empty = inspectorColour(canvas, "--dsa-empty");
  const binWidth = width / count;
  bins.forEach(({ strongest, read }, l) => {
    const top = l * (rowHeight + gap);
    const dimmed = layer !== "all" && layer !== l ? 0.35 : 1;
    context.fillStyle = empty;
    context.fillRect(0, top, width, rowHeight);
    for (let bin = 0; bin < count; bin++) {
      if (!read[bin]) continue;
      context.fillStyle = `rgba(${hot}, ${dimmed * (0.12 + 0.88 * strongest[bin])})`;
      context.fillRect(bin * binWidth, top, Math.max(1, binWidth), rowHeight);
    }
  });
  return (x, y) => {
    const l = Math.max(0, Math.min(bins.length - 1, Math.floor(y / (rowHeight + gap))));
    const bin = Math.max(0, Math.min(count - 1, Math.floor(x / binWidth)));
    const from = bin * perBin;
    const to = Math.min(length, from + perBin) - 1;
    return { layer: l, from, to, read: bins[l].read[bin], share: bins[l].strongest[bin] };
  };
}

// An SVG of the share of the context that each answer token read; dense attention is the line at 100 %.
function sharePlot(shares, picked, onPick) {
  const space = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const element = document.createElementNS(space, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.append(element);
    return element;
  };
  const width = 400, height = 64, floor = height - 2, top = 8;
  const x = (i) => (shares.length > 1 ? (i * width) / (shares.length - 1) : width / 2);
  const y = (share) => floor - share * (floor - top);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "dsa-plot", role: "img", "aria-label": "Share of the context that each token of the answer read" });
  make("line", { x1: 0, x2: width, y1: y(1), y2: y(1), class: "dsa-dense" }, svg);
  const line = shares.map((share, i) => `${x(i).toFixed(1)},${y(share).toFixed(1)}`);
  const points = shares.length > 1 ? line : [`0,${y(shares[0])}`, `${width},${y(shares[0])}`];
  make("polygon", { points: [`0,${floor}`, ...points, `${width},${floor}`].join(" "), class: "dsa-area" }, svg);
  make("polyline", { points: points.join(" "), class: "dsa-line" }, svg);
  if (picked !== null) make("line", { x1: x(picked), x2: x(picked), y1: 0, y2: height, class: "dsa-pick" }, svg);
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    onPick(Math.round(((event.clientX - box.left) / box.width) * (shares.length - 1)));
  });
  return svg;
}

// The inspector's two drawings: which layer read which positions, and how much of the context each answer token read.

// Draws the heat map into a canvas; returns a function from a point of it to the layer and the tokens shown there. The positions
// are grouped into bins, each with the strength of its strongest token and the number of tokens read.
function drawHeatMap(canvas, { layers, length, layer }) {
  const width = Math.max(120, canvas.clientWidth || 400);
  const rowHeight = Math.max(3, Math.min(18, Math.floor(170 / layers.length)));
  const gap = rowHeight > 8 ? 2 : 0;
  const height = layers.length * (rowHeight + gap);
  const scale = window.devicePixelRatio || 1;
  const perBin = Math.ceil(length / Math.floor(width / 2));
  const count = Math.ceil(length / perBin);
  const bins = layers.map(({ counts, strengths }) => {
    const row = { strongest: new Float32Array(count), read: new Uint32Array(count) };
    for (let s = 0; s < length; s++) {
      const bin = Math.floor(s / perBin);
      if (!counts[s]) continue;
      row.read[bin]++;
      row.strongest[bin] = Math.max(row.strongest[bin], strengths[s]);
    }
    return row;
  });
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const colour = (name) => getComputedStyle(canvas).getPropertyValue(name).trim();
  const [hot, empty] = [colour("--dsa-hot-rgb"), colour("--dsa-empty")];
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
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const draw = (name, attributes, element = svg.appendChild(document.createElementNS(svg.namespaceURI, name))) => {
    for (const key in attributes) element.setAttribute(key, attributes[key]);
  };
  const width = 400, height = 64, floor = height - 2, top = 8;
  const x = (i) => (shares.length > 1 ? (i * width) / (shares.length - 1) : width / 2);
  const y = (share) => floor - share * (floor - top);
  draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "dsa-plot", role: "img", "aria-label": "Share of the context that each token of the answer read" }, svg);
  draw("line", { x1: 0, x2: width, y1: y(1), y2: y(1), class: "dsa-dense" });
  const line = shares.map((share, i) => `${x(i).toFixed(1)},${y(share).toFixed(1)}`);
  const points = shares.length > 1 ? line : [`0,${y(shares[0])}`, `${width},${y(shares[0])}`];
  draw("polygon", { points: [`0,${floor}`, ...points, `${width},${floor}`].join(" "), class: "dsa-area" });
  draw("polyline", { points: points.join(" "), class: "dsa-line" });
  if (picked !== null) draw("line", { x1: x(picked), x2: x(picked), y1: 0, y2: height, class: "dsa-pick" });
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    onPick(Math.round(((event.clientX - box.left) / box.width) * (shares.length - 1)));
  });
  return svg;
}

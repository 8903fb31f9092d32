// gradio mounts the parts of the page in no fixed order: wait until those that other parts use are there.
const partsPresent = () =>
  ["dsa-list", "dsa-title", "dsa-log", "dsa-attach", "dsa-meter", "dsa-inspect", "dsa-text", "dsa-send"].every((id) => document.getElementById(id)) && document.querySelector("#dsa-text textarea");
while (!partsPresent()) await new Promise((resolve) => setTimeout(resolve, 15));

// What the parts tell each other.
const tell = (name, detail) => document.dispatchEvent(new CustomEvent(`dsa:${name}`, { detail }));
const on = (name, hear) => document.addEventListener(`dsa:${name}`, (event) => hear(event.detail));

const fileLabel = ({ name, tokens }) => (tokens ? `${name} · ${grouped(tokens)} tokens` : name);

// gradio mounts the parts of the page in no fixed order: wait until those that other parts use are there.
const partsPresent = () =>
  ["dsa-list", "dsa-title", "dsa-log", "dsa-attach", "dsa-meter", "dsa-inspect", "dsa-text"].every((id) => document.getElementById(id));
while (!partsPresent()) await new Promise((resolve) => setTimeout(resolve, 15));

// The planner itself: Python in a worker, so that the page stays alive while it computes.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const said = (message) => self.postMessage(message);

async function bytes(name, sha256) {
  const answer = await fetch(name, { integrity: `sha256-${sha256}` });
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.arrayBuffer();
}

const ready = (async () => {
  const manifest = await (await fetch("manifest.json")).json();
  const wheels = manifest.wheels.map((w) => bytes(`wheels/${w.file}`, w.sha256));
  said({ state: "Loading Python…" });
  const python = await loadPyodide({ indexURL: new URL("pyodide/", self.location.href).href });
  said({ state: "Loading the planner…" });
  for (const wheel of await Promise.all(wheels)) python.unpackArchive(wheel, "wheel");
  python.runPython("from gpuscale.answers.page import asked_json, names_json");
  said({ names: JSON.parse(python.globals.get("names_json")()) });
  return python;
})();
ready.catch((error) => said({ failed: String(error) }));

self.onmessage = async ({ data }) => {
  const python = await ready;
  if (data.file) {
    python.FS.writeFile(data.file.name, new Uint8Array(data.file.content));
    said({ id: data.id, kept: data.file.name });
    return;
  }
  try {
    const ask = python.globals.get("asked_json");
    const answer = JSON.parse(ask(data.command, JSON.stringify(data.given)));
    said({ id: data.id, answer });
  } catch (error) {
    said({ id: data.id, answer: { error: "the planner failed on this question", hint: String(error).slice(-400) } });
  }
};

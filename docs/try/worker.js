// The planner itself: Python in a worker, so that the page stays alive while it computes.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const said = (message) => self.postMessage(message);

const ready = (async () => {
  const manifest = await (await fetch("manifest.json")).json();
  const code = fetch("code.zip", { integrity: `sha256-${manifest.sha256}` });
  said({ state: "Loading Python…" });
  const python = await loadPyodide({ indexURL: new URL("pyodide/", self.location.href).href });
  said({ state: "Loading the planner…" });
  python.unpackArchive(await (await code).arrayBuffer(), "zip");
  python.runPython("from gpuscale.answers.page import asked_json, kept_json, names_json");
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
  const call = (name, ...rest) => JSON.parse(python.globals.get(name)(...rest));
  const given = JSON.stringify(data.given);
  try {
    if (data.what) said({ id: data.id, made: call("kept_json", data.command, given, data.what) });
    else said({ id: data.id, answer: call("asked_json", data.command, given) });
  } catch (error) {
    said({ id: data.id, answer: { error: "the planner failed on this question", hint: String(error).slice(-400) } });
  }
};

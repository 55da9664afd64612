// The planner itself: Python in a worker, so that the page stays alive while it computes.
const said = (message) => self.postMessage(message);

async function got(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer;
}

// Files ending in .gz are packed by us, whatever the server does.
const plain = async (name) => new Response((await got(name)).body.pipeThrough(new DecompressionStream("gzip")));

const ready = (async () => {
  const manifest = await (await got("manifest.json")).json();
  const code = got("code.tar.xz").then((answer) => answer.arrayBuffer());
  said({ state: "Loading Python…" });
  const wasm = (await plain("pyodide/pyodide.asm.wasm.gz")).arrayBuffer();
  const direct = self.fetch;
  self.fetch = async (name, ...rest) =>
    String(name?.url ?? name).endsWith(".asm.wasm") ? new Response(await wasm, { headers: { "Content-Type": "application/wasm" } }) : direct(name, ...rest);
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const python = await loadPyodide({ indexURL: new URL("pyodide/", self.location.href).href });
  self.fetch = direct;
  said({ state: "Loading the planner…" });
  const packed = await code;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", packed));
  if (btoa(String.fromCharCode(...hash)) !== manifest.sha256) throw new Error("code.tar.xz is not the file that this page was built with");
  python.FS.writeFile("/code.tar.xz", new Uint8Array(packed));
  python.runPython(`
import sys, sysconfig, tarfile
with tarfile.open("/code.tar.xz") as code:
    code.extractall(sysconfig.get_paths()["purelib"], filter="fully_trusted")
from gpuscale.answers.page import asked_json, kept_json, names_json
import gpuscale.answers.plan.train, gpuscale.answers.finetune.plan, gpuscale.answers.serve.document
`);
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
  const options = JSON.stringify(data.given);
  try {
    said({ id: data.id, made: data.what === "answer" ? call("asked_json", data.command, options) : call("kept_json", data.command, options, data.what) });
  } catch (error) {
    said({ id: data.id, made: { error: "the planner failed on this question", hint: String(error).slice(-400) } });
  }
};

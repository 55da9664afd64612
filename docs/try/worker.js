// The planner itself: Python in a worker, so that the page stays alive while it computes.
const said = (message) => self.postMessage(message);

async function got(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer;
}

// Packed by us, whatever the server does; read while it comes.
const PACKED = { "pyodide.asm.wasm": "application/wasm", "python_stdlib.zip": "application/zip" };
const plain = async (name) => (await got(`pyodide/${name}.gz`)).body.pipeThrough(new DecompressionStream("gzip"));

const ready = (async () => {
  said({ state: "Loading Python…" });
  const manifest = got("manifest.json").then((answer) => answer.json());
  const coming = Object.fromEntries(Object.keys(PACKED).map((name) => [name, plain(name)]));
  const created = import("./pyodide/pyodide.asm.mjs");
  const direct = self.fetch;
  // the code is asked for once the interpreter is there: it comes while Python starts
  let code = null;
  const ask = () => {
    code = got("code.zst").then((answer) => answer.arrayBuffer());
    code.catch(() => {}); // said where it is awaited
  };
  self.fetch = async (name, ...rest) => {
    const file = String(name?.url ?? name).split("/").at(-1);
    if (!(file in PACKED)) return direct(name, ...rest);
    return new Response(await coming[file], { headers: { "Content-Type": PACKED[file] } });
  };
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const { default: create } = await created;
  const python = await loadPyodide({
    indexURL: new URL("pyodide/", self.location.href).href,
    createPyodideModule: (settings) => {
      settings.preRun.push(ask);
      return create(settings);
    },
  });
  self.fetch = direct;
  said({ state: "Loading the planner…" });
  const packed = await code;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", packed));
  if (btoa(String.fromCharCode(...hash)) !== (await manifest).sha256) throw new Error("code.zst is not the file that this page was built with");
  python.FS.writeFile("/code.zst", new Uint8Array(packed));
  python.runPython(`
import importlib, json, os, sysconfig
from compression.zstd import decompress

def unpack(file, into):
    with open(file, "rb") as packed:
        whole = memoryview(decompress(packed.read()))
    at = 4 + int.from_bytes(whole[:4])
    for name, size in json.loads(bytes(whole[4:at])):
        path = os.path.join(into, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as made:
            made.write(whole[at : at + size])
        at += size

unpack("/code.zst", sysconfig.get_paths()["purelib"])
os.remove("/code.zst")
importlib.invalidate_caches()
from gpuscale.answers.page import asked_json, kept_json, names_json
`);
  said({ names: JSON.parse(python.globals.get("names_json")()) });
  return python;
})();
// what the next questions need is imported while nothing is asked
const IDLE = ["plan.train", "finetune.plan", "serve.document"];
const idle = async () => {
  const python = await ready;
  const module = IDLE.shift();
  if (module) {
    python.runPython(`import gpuscale.answers.${module}`);
    setTimeout(idle, 50);
  }
};
setTimeout(idle, 50);
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

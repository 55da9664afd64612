// The planner itself: Python in a worker, so that the page stays alive while it computes.
const said = (message) => self.postMessage(message);

async function got(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer;
}

// An archive of modules, held against the hash that the page was built with.
const manifest = got("manifest.json").then((answer) => answer.json());
manifest.catch(() => {}); // said where it is awaited
async function packed(name) {
  const content = await (await got(name)).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  if (btoa(String.fromCharCode(...hash)) !== (await manifest).sha256[name]) throw new Error(`${name} is not the file that this page was built with`);
  return new Uint8Array(content);
}

// Modules are made of an archive in memory when they are imported; only other files are written.
const UNPACK = `
import gc, json, marshal, os, sys, sysconfig
from compression.zstd import decompress
from importlib.util import spec_from_file_location
from types import SimpleNamespace

gc.set_threshold(20_000, 20, 20)
HEAD = 16  # bytes of a compiled file before its code
SITE = sysconfig.get_paths()["purelib"]

class Archive:
    def __init__(self):
        self.files = {}

    def find_spec(self, name, path=None, target=None):
        stem = name.replace(".", "/")
        for file in (stem + "/__init__.pyc", stem + ".pyc"):
            if file in self.files:
                inside = [os.path.join(SITE, stem)] if file.endswith("/__init__.pyc") else None
                where = os.path.join(SITE, file)
                spec = spec_from_file_location(name, where, loader=self, submodule_search_locations=inside)
                spec.loader_state = file
                return spec
        return None

    def create_module(self, spec):
        return None

    def get_resource_reader(self, name):
        from importlib.readers import FileReader
        return FileReader(SimpleNamespace(path=os.path.join(SITE, *name.split("."), "__init__.pyc")))

    def exec_module(self, module):
        exec(marshal.loads(self.files[module.__spec__.loader_state][HEAD:]), module.__dict__)

archive = Archive()
sys.meta_path.insert(0, archive)

def unpack(file):
    with open(file, "rb") as packed:
        whole = memoryview(decompress(packed.read()))
    os.remove(file)
    at = 4 + int.from_bytes(whole[:4])
    folders = set()
    for name, size in json.loads(bytes(whole[4:at])):
        content = whole[at : at + size]
        at += size
        if name.endswith(".pyc"):
            archive.files[name] = content
            continue
        path = os.path.join(SITE, name)
        folder = os.path.dirname(path)
        if folder not in folders:
            os.makedirs(folder, exist_ok=True)
            folders.add(folder)
        with open(path, "wb") as made:
            made.write(content)
`;

// What reads files of others, and settings said anew: it comes behind the first answers.
let readers = null;
const reads = async (python) => {
  readers ??= packed("pydantic.zst").then((content) => {
    python.FS.writeFile("/pydantic.zst", content);
    python.runPython('unpack("/pydantic.zst")');
  });
  await readers;
};

// Packed by us, whatever the server does; read while it comes.
const PACKED = { "pyodide.asm.wasm": "application/wasm", "python_stdlib.zip": "application/zip" };
const plain = async (name) => (await got(`pyodide/${name}.gz`)).body.pipeThrough(new DecompressionStream("gzip"));

const ready = (async () => {
  said({ state: "Loading Python…" });
  const coming = Object.fromEntries(Object.keys(PACKED).map((name) => [name, plain(name)]));
  const created = import("./pyodide/pyodide.asm.mjs");
  const direct = self.fetch;
  // the code is asked for once the interpreter is there: it comes while Python starts
  let code = null;
  const ask = () => {
    code = packed("code.zst");
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
  python.FS.writeFile("/code.zst", await code);
  python.runPython(UNPACK);
  python.runPython(`
unpack("/code.zst")
from gpuscale.answers.page import asked_json, kept_json, names_json
`);
  said({ names: JSON.parse(python.globals.get("names_json")()) });
  return python;
})();
// what the next questions need is imported while nothing is asked
const IDLE = ["training.plan_train", "training.tune_plan", "serve.document"];
let quiet = 0; // waits for a while without a question
const whenQuiet = () => {
  clearTimeout(quiet);
  quiet = setTimeout(idle, 800);
};
const idle = async () => {
  const python = await ready;
  const module = IDLE.shift();
  if (module) {
    python.runPython(`import gpuscale.answers.${module}`);
    whenQuiet();
  } else reads(python).catch(() => (readers = null)); // asked for again where it is needed
};
ready.then(whenQuiet).catch((error) => said({ failed: String(error) }));

self.onmessage = async ({ data }) => {
  const python = await ready;
  whenQuiet();
  if (data.file) {
    python.FS.writeFile(data.file.name, new Uint8Array(data.file.content));
    said({ id: data.id, kept: data.file.name });
    return;
  }
  const call = (name, ...rest) => JSON.parse(python.globals.get(name)(...rest));
  const options = JSON.stringify(data.given);
  const made = () => (data.what === "answer" ? call("asked_json", data.command, options) : call("kept_json", data.command, options, data.what));
  const again = async (error) => {
    if (!String(error).includes("No module named 'pydantic'")) throw error;
    await reads(python);
    return made();
  };
  try {
    let answer;
    try { answer = made(); } catch (error) { answer = await again(error); }
    said({ id: data.id, made: answer });
  } catch (error) {
    said({ id: data.id, made: { error: "the planner failed on this question", hint: String(error).slice(-400) } });
  }
};

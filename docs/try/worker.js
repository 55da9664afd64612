// The planner itself: Python in a worker, so that the page stays alive while it computes.
import { XzReadableStream } from "./xz.js";

const said = (message) => self.postMessage(message);

// An archive, unpacked while it comes: what it says of itself, and its content in order.
async function archive(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  const from = new XzReadableStream(answer.body).getReader();
  let part = new Uint8Array(0);
  const more = async () => {
    let one;
    try { one = await from.read(); } catch { one = { done: true }; }
    if (one.done) throw new Error(`${name} does not hold what it should`);
    part = one.value;
  };
  const some = async (most) => {
    while (!part.length) await more();
    const taken = part.subarray(0, most);
    part = part.subarray(taken.length);
    return taken;
  };
  const fill = async (into) => {
    for (let at = 0; at < into.length; ) {
      const taken = await some(into.length - at);
      into.set(taken, at);
      at += taken.length;
    }
    return into;
  };
  const size = new DataView((await fill(new Uint8Array(4))).buffer).getUint32(0);
  const head = JSON.parse(new TextDecoder().decode(await fill(new Uint8Array(size))));
  return { head, some, fill };
}

const SITE = "/lib/python3.14/site-packages/";
const folders = new Set();
async function write(FS, { head, fill }) {
  for (const [name, size] of head.files) {
    const folder = SITE + name.slice(0, name.lastIndexOf("/") + 1);
    if (!folders.has(folder)) FS.mkdirTree(folder);
    folders.add(folder);
    FS.writeFile(SITE + name, await fill(new Uint8Array(size)), { canOwn: true });
  }
}

// Python as it stood after a first answer: its code is compiled and its memory filled while they come
const PAGE = 4096;
const ready = (async () => {
  said({ state: "Loading Python…" });
  const modules = Promise.all([import("./pyodide/pyodide.asm.mjs"), import("./pyodide/pyodide.mjs")]);
  const interpreter = await archive("python.xz");
  let left = interpreter.head.bytes;
  let compiled = null;
  await new Promise((drained, failed) => {
    const code = new ReadableStream({
      async pull(to) {
        try {
          const taken = await interpreter.some(left);
          left -= taken.length;
          to.enqueue(taken.slice());
          if (!left) to.close();
          if (!left) drained();
        } catch (error) { failed(error); }
      },
    });
    compiled = WebAssembly.compileStreaming(new Response(code, { headers: { "Content-Type": "application/wasm" } }));
    compiled.catch(failed);
  });
  const start = await archive("start.xz");
  const { bytes, head: before, data, runs, lock } = start.head;
  const image = new Uint8Array(bytes);
  for (const [page, n] of runs) await start.fill(image.subarray(page * PAGE, (page + n) * PAGE));
  const compiler = await compiled;
  // what Pyodide would fetch is here already
  const direct = self.fetch;
  self.fetch = async () => new Response("");
  WebAssembly.instantiateStreaming = async (_, imports) => ({ module: compiler, instance: await WebAssembly.instantiate(compiler, imports) });
  const [{ default: create }, { loadPyodide }] = await modules;
  const python = await loadPyodide({
    indexURL: new URL("pyodide/", self.location.href).href,
    lockFileContents: JSON.stringify(lock),
    _loadSnapshot: image,
    createPyodideModule: async (settings) => {
      settings.preRun.unshift(({ HEAPU8: filled }) => { for (let i = 0; i < data; i++) image[before + i] ^= filled[i]; });
      const module = await create(settings);
      module.growMemory(bytes - before);
      return module;
    },
  });
  self.fetch = direct;
  await write(python.FS, start);
  said({ names: JSON.parse(python.globals.get("names_json")()) });
  return python;
})();

// What was not imported by then: it comes behind the first answer. A folder of data alone was a package
// without modules until then.
const ARRIVED = `
sys.path_importer_cache.clear()
for name, module in [*sys.modules.items()]:
    if hasattr(module, "__path__") and module.__spec__.origin is None:
        del sys.modules[name]
`;
let others = null;
let whole = false;
const rest = async (python) => {
  others ??= archive("rest.xz").then(async (found) => {
    await write(python.FS, found);
    python.runPython(ARRIVED);
    whole = true;
  });
  await others;
};
// what the next questions need is imported while nothing is asked
const IDLE = ["training.tune_plan", "serve.document"];
let quiet = 0; // waits for a while without a question
const whenQuiet = () => {
  clearTimeout(quiet);
  quiet = setTimeout(idle, 800);
};
const idle = async () => {
  const python = await ready;
  await rest(python).catch(() => (others = null)); // asked for again where it is needed
  const module = whole && IDLE.shift();
  if (!module) return;
  python.runPython(`import gpuscale.answers.${module}`);
  whenQuiet();
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
    if (whole) throw error;
    await rest(python);
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

// For node: starts the Python of the page, lets it answer once, and keeps its memory as it stands.
//   node try_snapshot.mjs PYODIDE OUT WHEEL...   with {compile, warm} on stdin
// Writes OUT/python: the interpreter; OUT/start: its memory and files of data; OUT/rest: modules not
// imported by then.
import { readFileSync, writeFileSync } from "node:fs";

const [folder, out, ...wheels] = process.argv.slice(2);
const told = JSON.parse(readFileSync(0, "utf-8"));
const { loadPyodide } = await import(`file://${folder}/pyodide.mjs`);
const { default: create } = await import(`file://${folder}/pyodide.asm.mjs`);
const SITE = "/lib/python3.14/site-packages/";
const PAGE = 4096; // bytes of memory that are kept or left out as one

// what a list of [name, bytes] names, in the content behind it
function unpacked(content) {
  let at = 4 + new DataView(content.buffer, content.byteOffset).getUint32(0);
  const rows = JSON.parse(new TextDecoder().decode(content.subarray(4, at)));
  return rows.map(([name, size]) => [name, content.subarray(at, (at += size))]);
}

function write(file, head, parts) {
  const said = new TextEncoder().encode(JSON.stringify(head));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, said.length);
  writeFileSync(`${out}/${file}`, Buffer.concat([length, said, ...parts]));
}

const maker = await loadPyodide({ indexURL: folder });
wheels.forEach((file, i) => maker.FS.writeFile(`/${i}.whl`, readFileSync(file)));
maker.globals.set("n_wheels", wheels.length);
maker.runPython(told.compile);
const ours = unpacked(maker.FS.readFile("/ours"));
writeFileSync(`${folder}/python_stdlib.zip`, maker.FS.readFile("/library.zip"));

let data = null; // memory as the interpreter's file fills it, before anything runs
const python = await loadPyodide({
  indexURL: folder, _makeSnapshot: true, env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0", PYTHONDONTWRITEBYTECODE: "1" },
  createPyodideModule: (settings) => { settings.preRun.unshift((module) => { data = module.HEAPU8.slice(); }); return create(settings); },
});
const { _module: module, FS } = python;
for (const [name, content] of ours) {
  FS.mkdirTree((SITE + name).replace(/\/[^/]*$/, ""));
  FS.writeFile(SITE + name, content);
}
python.runPython(told.warm);
const had = new Set(python.runPython("imported()").toJs());

// free memory is filled with zeros, which pack to nothing
python.runPython("blank()");
const end = Number(module._sbrk(0));
const held = [];
for (let size = 1 << 20; size >= 16; size >>= 1) for (;;) {
  const at = module._malloc(size);
  if (at + size > end) { module._free(at); break; }
  module.HEAPU8.fill(0, at, at + size);
  held.push(at);
}
held.forEach((at) => module._free(at));

const image = python.makeMemorySnapshot();
const head = new DataView(image.buffer).getUint32(4, true); // bytes before the memory
const filled = data.findLastIndex(Boolean) + 1;
for (let i = 0; i < filled; i++) image[head + i] ^= data[i];
const runs = []; // [first page, how many] that have something in them
for (let at = 0; at < image.length; at += PAGE) {
  if (!image.subarray(at, at + PAGE).some(Boolean)) continue;
  const last = runs.at(-1);
  if (last && last[0] + last[1] === at / PAGE) last[1]++;
  else runs.push([at / PAGE, 1]);
}
const memory = runs.map(([page, n]) => image.subarray(page * PAGE, (page + n) * PAGE));
const { info } = JSON.parse(readFileSync(`${folder}/pyodide-lock.json`, "utf-8"));
const lock = { info, packages: {} };
const wasm = readFileSync(`${folder}/pyodide.asm.wasm`);
const named = (rows) => rows.map(([name, content]) => [name, content.length]);
const contents = (rows) => rows.map(([, content]) => content);
const ended = (rows, modules) => rows.filter(([name]) => /\.(pyc|so)$/.test(name) === modules);
const files = ended(ours, false);
write("python", { bytes: wasm.length }, [wasm]);
write("start", { bytes: image.length, head, data: filled, runs, lock, files: named(files) }, [...memory, ...contents(files)]);
const others = unpacked(maker.FS.readFile("/library"));
const starts = /^(_?pyodide|asyncio|concurrent|_sysconfigdata\w*)[./]/; // imported at the start, or never
const rest = [...others, ...ended(ours, true)].filter(([name]) => !had.has(name) && !starts.test(name));
write("rest", { files: named(rest) }, contents(rest));
console.error(`memory ${image.length}, of it kept ${memory.reduce((n, part) => n + part.length, 0)}; modules started ${had.size}, others ${rest.length}`);

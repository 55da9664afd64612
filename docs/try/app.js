// The form: what is asked, kept in the address; the answer: what the worker says.
const $ = (id) => document.getElementById(id);
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

const text = (name, label, value = "", note = "") => ({ name, label, value, note });
const choice = (name, label, options, value = options[0]) => ({ name, label, options, value });

const TASKS = {
  tune: {
    command: "plan",
    preset: { model: "llama3-8b", gpus: "2", gpu: "rtx-3090" },
    fields: [
      choice("method", "Method", ["qlora", "lora", "dora", "full"]),
      text("seq_len", "Tokens of a sequence", "4096"),
      text("tokens", "Tokens to train on", "50M", "for hours and dollars; 20M, 1B"),
    ],
    more: [
      choice("software", "Software", ["", "hf-peft", "unsloth", "axolotl", "torchtune", "litgpt", "hf-fsdp", "fsdp-qlora", "hf-deepspeed"]),
      text("rank", "Rank of the adapters", "16"),
      text("micro_batch", "Sequences at a time", ""),
      choice("optimizer", "Optimizer", ["", "adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "lion", "sgd"]),
      choice("loss", "Cross entropy", ["", "eager", "chunked", "fused"]),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
  serve: {
    command: "serve",
    preset: { model: "llama3.1-8b", gpus: "1", gpu: "h100" },
    fields: [
      text("input", "Tokens of a prompt", "1024", "a number, or lognormal:2k,0.7"),
      text("output", "Tokens of an answer", "256"),
      text("rate", "Requests", "", "5/s; empty: the highest rate"),
      text("ttft", "First token within", "", "p95:500ms"),
      text("tpot", "Each further token within", "", "p95:30ms"),
    ],
    more: [
      choice("engine", "Engine", ["", "vllm", "sglang", "trtllm", "llama.cpp"]),
      choice("weights", "Weights", ["", "bf16", "fp8", "nvfp4", "awq", "q4_k_m"]),
      choice("kv", "Cache", ["", "bf16", "fp8"]),
      text("context", "Longest context", ""),
      text("tp", "Tensor parallel", ""),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
  train: {
    command: "plan",
    preset: { model: "llama3-70b", gpus: "512", gpu: "dgx-h100" },
    fields: [
      text("tokens", "Tokens of the run", "", "15T; empty: the model's own"),
      text("seq_len", "Tokens of a sequence", ""),
      text("batch_tokens", "Tokens of a step", "", "4M"),
    ],
    more: [
      choice("software", "Software", ["", "megatron-core", "megatron-bridge", "torchtitan", "fsdp", "deepspeed-zero3", "nanotron", "jax"]),
      choice("precision", "Precision", ["", "bf16", "fp8", "mxfp8", "nvfp4"]),
      text("tp", "Tensor parallel", ""),
      text("pp", "Pipeline stages", ""),
      choice("recompute", "Recomputation", ["", "none", "selective", "full"]),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
};

let task = "tune";
let names = { models: [], gpus: [], clusters: [] };
let latest = null;
let running = null;
let waiting = null;
let timer = 0;
let count = 0;

const worker = new Worker("worker.js", { type: "module" });

function control(field) {
  const box = document.createElement("div");
  box.className = "field";
  const label = document.createElement("label");
  label.htmlFor = field.name;
  label.textContent = field.label;
  const input = document.createElement(field.options ? "select" : "input");
  input.id = input.name = field.name;
  if (field.options) {
    for (const value of field.options) input.add(new Option(value || "the usual one", value));
  } else {
    input.spellcheck = false;
    if (field.note) input.placeholder = field.note;
  }
  input.value = field.value;
  box.append(label, input);
  return box;
}

function build(values) {
  const { fields, more, preset } = TASKS[task];
  $("fields").replaceChildren(...fields.map(control));
  $("more-fields").replaceChildren(...more.map(control));
  for (const [name, value] of Object.entries({ ...preset, ...values })) if ($(name)) $(name).value = value;
  document.querySelector(`input[name=task][value=${task}]`).checked = true;
  if (more.some((f) => values[f.name] && values[f.name] !== f.value)) $("more").open = true;
}

function asked() {
  const given = { model: $("model").value.trim() };
  const gpu = $("gpu").value.trim();
  if (gpu) given[names.clusters.includes(gpu) && !names.gpus.includes(gpu) ? "cluster" : "gpu"] = gpu;
  given.gpus = $("gpus").value.trim();
  const { fields, more } = TASKS[task];
  for (const field of [...fields, ...more]) {
    const value = $(field.name).value.trim();
    if (value) given[field.name] = value;
  }
  if (task === "tune" && given.method === "full") delete given.rank;
  return given;
}

function remember() {
  const { fields, more, preset } = TASKS[task];
  const kept = new URLSearchParams({ task });
  for (const name of ["model", "gpus", "gpu"]) if ($(name).value !== preset[name]) kept.set(name, $(name).value);
  for (const field of [...fields, ...more]) if ($(field.name).value !== field.value) kept.set(field.name, $(field.name).value);
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  task = kept.task in TASKS ? kept.task : "tune";
  delete kept.task;
  build(kept);
}

function send(now = false) {
  clearTimeout(timer);
  remember();
  timer = setTimeout(() => {
    const question = { id: ++count, command: TASKS[task].command, given: asked() };
    if (running) waiting = question;
    else start(question);
  }, now ? 0 : 250);
}

function start(question) {
  running = question;
  $("answer").classList.add("old");
  worker.postMessage(question);
}

function say(words, wrong = false) {
  $("state").textContent = words;
  $("state").classList.toggle("error", wrong);
}

function gb(bytes) {
  return `${(bytes / 1e9).toFixed(bytes < 1e11 ? 1 : 0)} GB`;
}

function showMemory(memory) {
  $("memory").hidden = !memory;
  if (!memory) return;
  const total = memory.parts.reduce((sum, [, value]) => sum + value, 0);
  const scale = Math.max(total, memory.usable) * 1.02;
  $("memory-parts").replaceChildren();
  $("memory-legend").replaceChildren();
  memory.parts.forEach(([name, value, words], i) => {
    const part = document.createElement("span");
    part.style.width = `${(100 * value) / scale}%`;
    part.style.background = COLOURS[i % COLOURS.length];
    part.title = `${name} ${words}`;
    const mark = document.createElement("i");
    mark.style.background = part.style.background;
    const item = document.createElement("li");
    item.append(mark, `${name} ${words}`);
    $("memory-parts").append(part);
    $("memory-legend").append(item);
  });
  $("memory-limit").style.left = `${(100 * memory.usable) / scale}%`;
  $("memory-text").textContent = `Memory of a GPU: ${gb(total)} of ${gb(memory.usable)} usable`;
}

function show(answer) {
  latest = answer;
  $("command").textContent = answer.command ?? "";
  if (answer.error) {
    say(`${answer.error}${answer.hint ? `. ${answer.hint}` : ""}`, true);
    $("save-launch").hidden = true;
    return;
  }
  say("");
  $("head").innerHTML = answer.head; // written and escaped by the planner
  $("body").innerHTML = answer.body;
  showMemory(answer.memory);
  $("save-launch").hidden = Object.keys(answer.launch).length === 0;
  $("answer").classList.remove("old");
  for (const table of $("body").querySelectorAll("table.sortable")) sortable(table);
}

function sortable(table) {
  table.querySelectorAll("thead th").forEach((th, column) => {
    th.querySelector("button")?.addEventListener("click", () => {
      const up = th.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.setAttribute("aria-sort", "none"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? "";
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        const less = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y);
        return up ? less : -less;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

worker.onmessage = ({ data }) => {
  if (data.state) say(data.state);
  else if (data.failed) say(`The planner could not be loaded: ${data.failed}`, true);
  else if (data.names) {
    names = data.names;
    const fill = (id, list) => $(id).replaceChildren(...list.map((n) => new Option(n, n)));
    const style = document.createElement("style");
    style.textContent = names.style; // of the pictures, as in a report
    document.head.append(style);
    fill("models", names.models);
    fill("gpu-names", [...names.gpus, ...names.clusters]);
    say("");
    send(true);
  } else if (data.kept) {
    $("model").value = data.kept;
    send(true);
  } else {
    running = null;
    if (waiting) {
      const next = waiting;
      waiting = null;
      start(next);
    } else show(data.answer);
  }
};

async function take(file) {
  if (!file || file.size > 1e6) return say("A config.json is a small text file.", true);
  const name = /\.json$/.test(file.name) ? file.name.replace(/[^\w.-]/g, "_") : "config.json";
  worker.postMessage({ id: ++count, file: { name, content: await file.arrayBuffer() } });
}

function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function copy(button, words) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(words);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it above";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

$("copy-command").onclick = (e) => latest && copy(e.target, latest.command);
$("copy-link").onclick = (e) => copy(e.target, location.href);
$("save-json").onclick = () => latest?.answer && save("answer.json", JSON.stringify(latest.answer, null, 2), "application/json");
$("save-page").onclick = () => latest?.report && save("answer.html", latest.report, "text/html");
$("save-picture").onclick = () => {
  const picture = $("body").querySelector("figure svg");
  if (picture) save("picture.svg", new XMLSerializer().serializeToString(picture), "image/svg+xml");
};
$("save-launch").onclick = () => {
  const file = Object.entries(latest?.launch ?? {})[0];
  if (file) save(file[0], file[1], "text/x-shellscript");
};
$("form").addEventListener("input", (e) => {
  if (e.target.id === "config") return void take(e.target.files[0]);
  if (e.target.name === "task") { task = e.target.value; build({}); }
  send();
});
$("form").addEventListener("submit", (e) => { e.preventDefault(); send(true); });
addEventListener("hashchange", () => { recall(); send(true); });
addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("drop"); });
addEventListener("dragleave", (e) => { if (!e.relatedTarget) document.body.classList.remove("drop"); });
addEventListener("drop", (e) => { e.preventDefault(); document.body.classList.remove("drop"); take(e.dataTransfer.files[0]); });
recall();
if ("serviceWorker" in navigator && location.protocol.startsWith("http")) navigator.serviceWorker.register("sw.js").catch(() => {});

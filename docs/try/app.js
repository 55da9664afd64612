// The form: what is asked, kept in the address; the answer: what the worker says.
const $ = (id) => document.getElementById(id);

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
      text("micro_batch", "Sequences at a time", "", "what fits best"),
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
      text("output_len", "Tokens of an answer", "256"),
      text("rate", "Requests", "", "5/s; empty: the highest rate"),
      text("ttft", "First token within", "", "p95:500ms"),
      text("tpot", "Each further token within", "", "p95:30ms"),
    ],
    more: [
      choice("engine", "Engine", ["", "vllm", "sglang", "trtllm", "llama.cpp"]),
      choice("weights", "Weights", ["", "bf16", "fp8", "nvfp4", "awq", "q4_k_m"]),
      choice("kv", "Cache", ["", "bf16", "fp8"]),
      text("context", "Longest context", "", "tokens; 32k"),
      text("tp", "Tensor parallel", "", "GPUs of a replica"),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
  train: {
    command: "plan",
    preset: { model: "llama3-70b", gpus: "512", gpu: "dgx-h100" },
    fields: [
      text("tokens", "Tokens of the run", "", "15T; empty: the model's own"),
      text("seq_len", "Tokens of a sequence", "", "8k; empty: the model's own"),
      text("batch_tokens", "Tokens of a step", "", "4M"),
    ],
    more: [
      choice("software", "Software", ["", "megatron-core", "megatron-bridge", "torchtitan", "fsdp", "deepspeed-zero3", "nanotron", "jax"]),
      choice("precision", "Precision", ["", "bf16", "fp8", "mxfp8", "nvfp4"]),
      text("tp", "Tensor parallel", "", "what is fastest"),
      text("pp", "Pipeline stages", "", "what is fastest"),
      choice("recompute", "Recomputation", ["", "none", "selective", "full"]),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
  rl: {
    command: "plan",
    preset: { model: "qwen2.5-7b", gpus: "8", gpu: "h100" },
    fields: [
      choice("method", "Method", ["grpo", "ppo", "rloo", "dpo"]),
      text("response", "Tokens of an answer", "1024", "on average"),
      text("max_response", "Longest answer", "", "tokens; four times the average"),
      text("steps", "Steps of the run", "", "for hours and dollars; 200"),
    ],
    more: [
      text("prompt", "Tokens of a prompt", "512", "on average"),
      text("prompts", "Prompts of a step", "", "128"),
      text("group", "Answers to a prompt", "", "8"),
      choice("engine", "Rollouts", ["", "colocated", "split", "async"]),
      text("rollout_gpus", "GPUs that only roll out", "", "split and async"),
      choice("software", "Software", ["", "hf-deepspeed", "hf-fsdp", "megatron-core", "hf-peft"]),
      text("rank", "Rank of adapters", "", "empty: all weights"),
      text("price", "Price of a GPU", "", "2.5 USD/h"),
    ],
  },
};

let task = "tune";
let names = { models: [], gpus: [], clusters: [] };
let latest = null; // the answer shown, and its question
let running = null;
let waiting = null;
let timer = 0;
let count = 0;
const wanted = new Map(); // files asked for, by number

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

// "3090" or "Llama 3 8B": the one name that is meant, or else what was typed
function meant(typed, list) {
  const bare = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");
  if (!typed || list.includes(typed)) return typed;
  const same = list.filter((name) => bare(name) === bare(typed));
  const like = list.filter((name) => bare(name).includes(bare(typed)));
  return same[0] ?? (like.length === 1 ? like[0] : typed);
}

function asked() {
  const given = { model: meant($("model").value.trim(), names.models) };
  const gpu = meant($("gpu").value.trim(), [...names.gpus, ...names.clusters]);
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
  }, now ? 0 : 200);
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

// marks the field that an error is about
function blame(error = "") {
  for (const input of document.querySelectorAll("#form input")) {
    const value = input.value.trim();
    const wrong = error && value && error.includes(`\`${value}\``);
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}

function show(answer, question) {
  $("command").textContent = answer.command ?? "";
  blame(answer.error);
  $("launch").hidden = !answer.launch;
  $("launch").open = false;
  if (answer.error) {
    latest = null;
    return say(`${answer.error}${answer.hint ? `. ${answer.hint}` : ""}`, true);
  }
  latest = { ...answer, question };
  say("");
  $("head").innerHTML = answer.head; // written and escaped by the planner
  $("body").innerHTML = answer.body;
  $("answer").classList.remove("old");
  for (const table of $("body").querySelectorAll("table.sortable")) sortable(table);
  keepForLater();
}

function sortable(table) {
  table.querySelectorAll("thead th").forEach((th, column) => {
    th.querySelector("button")?.addEventListener("click", () => {
      const up = th.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.setAttribute("aria-sort", "none"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
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
    fill("models", names.models);
    fill("gpu-names", [...names.gpus, ...names.clusters]);
    send(true);
  } else if (data.kept) {
    $("model").value = data.kept;
    send(true);
  } else if (wanted.has(data.id)) {
    wanted.get(data.id)(data.made ?? { error: data.answer.error });
    wanted.delete(data.id);
  } else {
    const question = running;
    running = null;
    if (waiting) {
      const next = waiting;
      waiting = null;
      start(next);
    } else show(data.answer, question);
  }
};

// asks the worker for a file of the answer that is shown
function made(what) {
  const { command, given } = latest.question;
  const id = ++count;
  worker.postMessage({ id, command, given, what });
  return new Promise((done) => wanted.set(id, done));
}

async function take(file) {
  if (!file || file.size > 1e6) return say("A config.json is a small text file.", true);
  const name = /\.json$/.test(file.name) ? file.name.replace(/[^\w.-]/g, "_") : "config.json";
  worker.postMessage({ id: ++count, file: { name, content: await file.arrayBuffer() } });
}

async function save(what) {
  if (!latest) return;
  const file = await made(what);
  if (file.error) return say(file.error, true);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([file.text], { type: file.type }));
  link.download = file.file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(button, words) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(words);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

// once an answer stands, the browser keeps all files for a visit without a network
let keeping = false;
function keepForLater() {
  if (keeping || !("serviceWorker" in navigator) || !location.protocol.startsWith("http")) return;
  keeping = true;
  navigator.serviceWorker.register("sw.js").catch(() => {});
}

$("copy-command").onclick = (e) => copy(e.target, $("command").textContent);
$("copy-link").onclick = (e) => copy(e.target, location.href);
$("copy-json").onclick = (e) => latest && copy(e.target, JSON.stringify(latest.answer, null, 2));
$("save-page").onclick = () => save("page");
$("save-picture").onclick = () => save("picture");
$("launch").addEventListener("toggle", async () => {
  if (!$("launch").open || !latest) return;
  const file = await made("launch");
  $("launch-text").textContent = file.text ?? file.error;
});
$("form").addEventListener("input", (e) => {
  if (e.target.id === "config") return void take(e.target.files[0]);
  if (e.target.name === "task") { task = e.target.value; build({}); }
  send(e.target.name === "task");
});
$("form").addEventListener("submit", (e) => { e.preventDefault(); send(true); });
addEventListener("hashchange", () => { recall(); send(true); });
addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("drop"); });
addEventListener("dragleave", (e) => { if (!e.relatedTarget) document.body.classList.remove("drop"); });
addEventListener("drop", (e) => { e.preventDefault(); document.body.classList.remove("drop"); take(e.dataTransfer.files[0]); });
recall();

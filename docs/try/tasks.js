// What can be asked: the fields of each task, and the questions that a form stands for. Nothing here
// touches the page, so that the build asks the same questions for the first answers.
const text = (name, label, value = "", note = "") => ({ name, label, value, note });
const choice = (name, label, options, value = options[0]) => ({ name, label, options, value });
const price = text("price", "Price of a GPU", "", "2.5 USD/h");
const doubled = (n, low, high) => {
  const found = [];
  for (let k = low; k <= high; k++) if (Number.isInteger(n * 2 ** k) && n * 2 ** k >= 1) found.push(n * 2 ** k);
  return found;
};
const knob = (name, label, usual, low = -3, high = 3, dim = "count") => ({ name, label, usual, low, high, dim });
const figure = (label, dim, of) => ({ label, dim, of });

export const SHARED = { model: "llama3.1-8b", gpus: "16", gpu: "h100" };

export const TASKS = {
  train: {
    title: "Pretrain",
    command: "plan",
    fields: [
      text("tokens", "Tokens of the run", "200B", "15T; empty: the model's own"),
      text("deadline", "Deadline", "", "30d: the fewest GPUs in time"),
      text("budget", "Budget", "", "5MUSD: the fastest within it"),
      text("batch_tokens", "Tokens of a step", "", "4M"),
    ],
    more: [
      text("seq_len", "Tokens of a sequence", "", "8k; empty: the model's own"),
      choice("software", "Software", ["", "megatron-core", "megatron-bridge", "torchtitan", "fsdp", "deepspeed-zero3", "nanotron", "jax"]),
      choice("precision", "Precision", ["", "bf16", "fp8", "mxfp8", "nvfp4"]),
      choice("maturity", "How tuned it is", ["", "tuned", "as-it-comes", "script"]),
      price,
    ],
    pins: ["tp", "pp", "cp", "ep", "vpp", "zero", "micro_batch", "recompute"],
    drawn: "12", // layouts of the search in its picture: more take longer
    knobs: [knob("gpus", "GPUs"), knob("batch_tokens", "Tokens of a step", 4e6, -3, 2)],
    figures: [
      figure("Run", "s", (r) => r.run?.expected_days != null ? r.run.expected_days * 86400 : r.step_s),
      figure("Cost", "usd", (r) => r.run?.usd),
      figure("MFU", "frac", (r) => r.mfu),
    ],
  },
  tune: {
    title: "Fine-tune",
    command: "plan",
    fields: [
      choice("method", "Method", ["lora", "qlora", "dora", "full"]),
      text("tokens", "Tokens to train on", "50M", "20M, 1B"),
      text("seq_len", "Tokens of a sequence", "4096"),
    ],
    more: [
      choice("software", "Software", ["", "hf-peft", "unsloth", "axolotl", "torchtune", "litgpt", "hf-fsdp", "fsdp-qlora", "hf-deepspeed"]),
      text("rank", "Rank of the adapters", "16"),
      text("micro_batch", "Sequences at a time", "", "what fits best"),
      choice("optimizer", "Optimizer", ["", "adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "lion", "sgd"]),
      choice("loss", "Cross entropy", ["", "eager", "chunked", "fused"]),
      choice("targets", "Maps with an adapter", ["", "all-linear", "attention", "mlp"]),
      text("mean_len", "Mean tokens of an example", "", "empty: no padding"),
      price,
    ],
    pins: ["zero", "recompute", "offload"],
    ways: [{ zero: ["0", "2", "3"], micro_batch: ["1", "2", "4", "8"], recompute: ["none", "full"] }],
    knobs: [knob("gpus", "GPUs"), knob("micro_batch", "Sequences at a time", 2, -1, 3)],
    figures: [
      figure("Run", "s", (r) => r.run_s),
      figure("Cost", "usd", (r) => r.cost_usd),
      figure("Tokens/s", "count", (r) => r.tokens_per_s),
    ],
  },
  serve: {
    title: "Serve",
    command: "serve",
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
      text("concurrency", "Requests in flight", "", "a benchmark's closed loop"),
      price,
    ],
    pins: ["tp"],
    knobs: [knob("gpus", "GPUs", 8, -4, 2), knob("concurrency", "Requests in flight", 64, -4, 2)],
    figures: [
      figure("Requests/s", "count", (r) => r.requests_per_s ?? r.at_most_per_s),
      figure("USD per M tokens out", "usd", (r) => r.usd_per_million_output_tokens),
      figure("Tokens/s of a user", "count", (r) => r.tokens_per_s_per_user),
    ],
  },
  rl: {
    title: "RL",
    command: "plan",
    fields: [
      choice("method", "Method", ["grpo", "ppo", "rloo", "dpo"]),
      text("response", "Tokens of an answer", "1024", "on average"),
      text("steps", "Steps of the run", "200", "for hours and dollars"),
    ],
    more: [
      text("max_response", "Longest answer", "", "tokens; four times the average"),
      text("prompt", "Tokens of a prompt", "512", "on average"),
      text("prompts", "Prompts of a step", "", "128"),
      text("group", "Answers to a prompt", "", "8"),
      choice("engine", "Rollouts", ["", "colocated", "split", "async"]),
      text("rollout_gpus", "GPUs that only roll out", "", "split and async"),
      choice("optimizer", "Optimizer", ["", "adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor"]),
      choice("software", "Software", ["", "hf-deepspeed", "hf-fsdp", "megatron-core", "hf-peft"]),
      price,
    ],
    pins: ["rollout_tp", "zero", "recompute", "micro_batch"],
    ways: [
      { engine: ["colocated"], rollout_tp: ["1", "2", "4", "8"], recompute: ["none", "full"] },
      { engine: ["split", "async"], recompute: ["none", "full"] },
      { zero: ["2", "3"], micro_batch: ["1", "2", "4"], recompute: ["none", "full"] },
    ],
    knobs: [knob("gpus", "GPUs", 16, -2, 3), knob("prompts", "Prompts of a step", 128, -2, 2)],
    figures: [
      figure("Run", "s", (r) => r.run_s ?? r.step_s),
      figure("Cost", "usd", (r) => r.cost_usd ?? r.bill?.charge?.usd),
      figure("Samples/s", "count", (r) => r.samples_per_s),
    ],
  },
  collective: {
    title: "Collective",
    command: "collective",
    without: ["model"],
    fields: [
      choice("op", "Operation", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv"]),
      text("bytes", "Size of the array", "1 GB", "64 MB"),
    ],
    more: [text("algorithm", "Algorithm", "", "ring, tree, ...")],
    pins: [],
    knobs: [knob("gpus", "GPUs"), knob("bytes", "Size", 1e9, -6, 4, "bytes")],
    figures: [
      figure("Time", "s", (r) => r.expected?.time_s ?? r.time_s),
      figure("Bus bandwidth", "bytes_per_s", (r) => r.expected?.busbw_bytes_per_s ?? r.busbw_bytes_per_s),
      figure("Roofline", "s", (r) => r.time_s),
    ],
  },
  diagnose: {
    title: "Diagnose",
    command: "diagnose",
    fields: [
      text("measured", "What was measured", "mfu=30 %", "tokens/s/gpu=3100; oom=step 3"),
      text("settings", "Settings of the run", "", "zero=3; compile=false"),
    ],
    more: [
      choice("kind", "Kind of run", ["", "pretrain", "finetune", "rl", "serving", "network"]),
      text("software", "Software", "", "NAME or NAME:VERSION"),
      text("seq_len", "Tokens of a sequence", "", "8k; empty: the model's own"),
      text("global_batch", "Sequences of a step"),
    ],
    log: true,
    pins: [],
    knobs: [],
    figures: [],
  },
};

// "3090" or "Llama 3 8B": the one name that is meant, or else what was typed
function meant(typed, list) {
  const bare = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "");
  if (!typed || list.includes(typed)) return typed;
  const same = list.filter((name) => bare(name) === bare(typed));
  const like = list.filter((name) => bare(name).includes(bare(typed)));
  return same[0] ?? (like.length === 1 ? like[0] : typed);
}

export function values(task) {
  const own = [...TASKS[task].fields, ...TASKS[task].more].map((f) => [f.name, f.value]);
  return { ...SHARED, ...Object.fromEntries(own) };
}

// Options of the command that a form asks for.
export function given(task, form, names) {
  const found = {};
  const gpu = meant(form.gpu, [...names.gpus, ...names.clusters]);
  const cluster = task === "collective" || (names.clusters.includes(gpu) && !names.gpus.includes(gpu));
  if (!TASKS[task].without?.includes("model") && !(form.log && !form.model)) found.model = meant(form.model, names.models);
  if (gpu) found[cluster ? "cluster" : "gpu"] = gpu;
  if (form.gpus) found.gpus = form.gpus;
  const { fields, more, pins } = TASKS[task];
  for (const name of [...fields, ...more].map((f) => f.name).concat(pins)) if (form[name]) found[name] = form[name];
  if (form.log) { found.log = form.log; delete found.measured; }
  if (found.method === "full") for (const name of ["rank", "targets"]) delete found[name];
  if (found.deadline || found.budget) if (/^\d+$/.test(found.gpus ?? "")) found.gpus = doubled(+found.gpus, -3, 3).join();
  return found;
}

export const ask = (what, command, options) => ({ what, command, given: options });

// What the planner says, in the words of a form: options that it has by their labels (`fields`: name
// -> label), those that it has not left out of brackets, and command lines left out.
export function inWords(said, fields) {
  const known = (option) => fields[option.slice(2).replaceAll("-", "_")];
  const kept = (part) => !/^--[a-z]/.test(part) || known(/^--[a-z0-9-]+/.exec(part)[0]);
  return said
    .replace(/[;:,]? *`?gpuscale [^;`]*--[^;`]*`?/g, "")
    .replace(/ ?\(([^()]*--[a-z][^()]*)\)/g, (_, inside) => {
      const rest = inside.split(", ").filter(kept);
      return rest.length ? ` (${rest.join(", ")})` : "";
    })
    .replace(/`?(--[a-z][a-z0-9-]*)`?( '[^']*')?/g, (all, option) => (known(option) ? `“${known(option)}”` : all));
}

// Whether an error is about a field: it names the option of it, or its value.
export function concerns(error, name, value) {
  const option = new RegExp(`--${name === "gpu" ? "(gpu|cluster)" : name.replaceAll("_", "-")}(?![\\w-])`);
  return option.test(error) || (!!value && error.includes(`\`${value}\``));
}

// The values of a slider, and the question of each; `more`: how many further doublings.
export function steps(task, { name, usual, low, high }, options, more = 0) {
  const typed = Number(String(options[name] ?? usual).replace(/^([\d.]+) ?M$/i, (_, n) => n * 1e6).replace(/^([\d.]+) ?GB$/i, (_, n) => n * 1e9));
  if (!typed) return [];
  return doubled(typed, low, high + more).map((value) => ({
    value,
    question: ask("answer", TASKS[task].command, value === typed && options[name] ? options : { ...options, [name]: String(value) }),
  }));
}

// Other ways to run a job whose command answers with one: each with the pins that make it.
export function ways(task, options) {
  const { ways: grids = [], pins } = TASKS[task];
  const varied = new Set([...pins, ...grids.flatMap(Object.keys)]);
  const free = Object.fromEntries(Object.entries(options).filter(([name]) => !varied.has(name)));
  const every = (grid) => Object.entries(grid).reduce((all, [name, found]) => all.flatMap((one) => found.map((value) => ({ ...one, [name]: value }))), [{}]);
  return grids.flatMap(every).map((pinned) => ({ pinned, question: ask("point", TASKS[task].command, { ...free, ...pinned }) }));
}

// The search that a picture of layouts shows, whatever is pinned; null for a task without one.
export function search(task, options) {
  const { drawn, pins, command } = TASKS[task];
  const free = Object.fromEntries(Object.entries(options).filter(([name]) => !pins.includes(name)));
  return drawn ? ask("answer", command, { ...free, alternatives: drawn }) : null;
}

// Charts that are an answer of another command: operators under the roof, user speed against cost.
export function beside(task, options, result) {
  const machine = options.cluster ? { cluster: options.cluster } : { gpu: options.gpu };
  if (task === "serve" && result?.rows) {
    const { rate, ttft, tpot, concurrency, price, ...rest } = options;
    return [ask("charts", "serve", { ...rest, pareto: "true" })];
  }
  const layout = result?.layout;
  if (task !== "train" || !layout || !result.n_gpus) return [];
  const { tp, pp, cp, ep } = layout;
  return [ask("charts", "roofline", { target: options.model, ...machine, gpus: String(result.n_gpus), tp: String(tp), pp: String(pp), cp: String(cp), ep: String(ep) })];
}

// All that the page asks for one form, the answer first.
export function questions(task, options, result) {
  const { command, knobs } = TASKS[task];
  const made = ["charts", "events", "details"].map((what) => ask(what, command, options));
  const slid = /^\d+$/.test(options.gpus ?? "1") && !options.deadline && !options.budget ? knobs : [];
  return [ask("answer", command, options), ...made, ...[search(task, options)].filter(Boolean), ...beside(task, options, result), ...ways(task, options).map((w) => w.question), ...slid.flatMap((k) => steps(task, k, options).map((s) => s.question))];
}

// The form, kept in the address; the answer, drawn from its data; what was asked before, kept.
import { TASKS, SHARED, ask, beside, concerns, given, inWords, search, steps, values, ways } from "./tasks.js";
import { along, draw, drawable, know, loaded, shown, stepped } from "./charts.js";

const $ = (id) => document.getElementById(id);
const node = (tag, more = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), more);
  made.append(...inside);
  return made;
};
// what is to be drawn, each once however often it is asked for; one a task, so that the page stays alive
const jobs = new Set();
let working = false;
async function work() {
  working = true;
  await loaded;
  for (const go of jobs) {
    jobs.delete(go);
    await new Promise((done) => setTimeout(() => { done(); go(); }));
  }
  working = false;
}
const soon = (go) => () => {
  jobs.add(go);
  if (!working) work();
};
const fields = () => [...TASKS[task].fields, ...TASKS[task].more];
const pinned = () => Object.fromEntries(TASKS[task].pins.filter((name) => form[name]).map((name) => [name, form[name]]));

let task = "train";
let form = values(task); // what is typed, by name of the field; pins of a layout too
let names = { models: [], gpus: [], clusters: [] };
let latest = null; // { question, answer, options } shown
let kept = null; // the job beside, as the text of its address
let tab = "";
let view = null; // part of the timeline
let timer = 0;
let asked = 0;

// --- questions: answered once, the most urgent first ------------------------------------------

const known = new Map();
const queue = []; // { key, question, urgency, done: [] }
let running = null;
let count = 0;
let ready = false; // the planner is there
let dead = "";
const worker = new Worker("worker.js", { type: "module" });
const keyOf = (question) => JSON.stringify([question.what, question.command, Object.entries(question.given).sort()]);

function answered(question, urgency = 2) {
  const key = keyOf(question);
  if (known.has(key)) return known.get(key);
  if (dead) return Promise.resolve({ error: dead });
  let waiting = queue.find((one) => one.key === key) ?? (running?.key === key ? running : null);
  if (!waiting) queue.push((waiting = { key, question, urgency, done: [] }));
  waiting.urgency = Math.min(waiting.urgency, urgency);
  return new Promise((done) => { waiting.done.push(done); next(); });
}

function next() {
  if (running || !queue.length || !ready) return;
  queue.sort((a, b) => a.urgency - b.urgency);
  running = { ...queue.shift(), id: ++count };
  worker.postMessage({ id: running.id, ...running.question });
}

worker.onmessage = ({ data }) => {
  if (data.state) say(latest ? `${data.state} These answers were made before; yours come when it is there.` : data.state);
  else if (data.failed) broken(data.failed);
  else if (data.names) {
    ready = true;
    names = data.names;
    know(names.words);
    offer();
    send(0);
    setTimeout(keepForLater, 5000); // after the first answers
  } else if (data.kept) {
    if (/\.json$/.test(data.kept)) form.model = data.kept;
    else form.log = data.kept;
    if (form.log === data.kept && task !== "diagnose") switchTo("diagnose");
    build();
    send(0, true);
  } else if (running?.id === data.id) {
    const { key, done, question } = running;
    running = null;
    if (!question.given.log && !/\.json$/.test(question.given.model ?? "")) known.set(key, data.made);
    done.forEach((one) => one(data.made));
    next();
  }
};
worker.onerror = (error) => broken(error.message || "a file of this page is missing");

function broken(why) {
  dead = "the planner could not be loaded";
  say(`The planner could not be loaded (${why}). What was answered before still shows; reload to try again.`, true);
  for (const one of queue.splice(0)) one.done.forEach((done) => done({ error: dead }));
}

// answers made before; those who wait for one have it
function seed(rows) {
  for (const [question, made] of rows ?? []) {
    const key = keyOf(question);
    known.set(key, made);
    const at = queue.findIndex((one) => one.key === key);
    if (at >= 0) queue.splice(at, 1)[0].done.forEach((done) => done(made));
  }
}

// --- the form ---------------------------------------------------------------------------------

function control(field) {
  const input = node(field.options ? "select" : "input", { id: field.name, name: field.name });
  if (field.options) for (const value of field.options) input.add(new Option(value || "the usual one", value));
  else Object.assign(input, { spellcheck: false, placeholder: field.note });
  return node("div", { className: "field" }, node("label", { htmlFor: field.name, textContent: field.label }), input);
}

function build() {
  const { fields: own, more, without } = TASKS[task];
  $("fields").replaceChildren(...own.map(control));
  $("more-fields").replaceChildren(...more.map(control));
  for (const [name, value] of Object.entries(form)) if ($(name)?.matches("input, select")) $(name).value = value;
  $("of-model").hidden = !!without?.includes("model");
  $("of-log").hidden = !TASKS[task].log;
  $("log-name").textContent = form.log ?? "";
  document.querySelector(`input[name=task][value=${task}]`).checked = true;
  if (more.some((f) => form[f.name] !== f.value)) $("more").open = true;
  showPins();
}

function showPins() {
  const pins = Object.entries(pinned());
  $("pinned").hidden = !pins.length;
  const free = node("button", { type: "button", textContent: "Release", onclick: () => { for (const [name] of pins) delete form[name]; send(0, true); } });
  $("pinned").replaceChildren(`Pinned: ${pins.map(([k, v]) => `${k.replace("_", " ")} ${v}`).join(", ")} `, free);
  const bar = document.querySelector(".asked");
  bar.textContent = `${TASKS[task].title}: ${form.model} on ${form.gpus} ${form.gpu}`;
}

function offer() {
  const fill = (id, list) => $(id).replaceChildren(...list.map((n) => new Option(n, n)));
  fill("models", names.models);
  fill("gpu-names", [...names.gpus, ...names.clusters]);
}

// the task changes, model and machine stay
function switchTo(other) {
  const stay = Object.fromEntries(Object.keys(SHARED).map((name) => [name, form[name]]));
  task = other;
  form = { ...values(task), ...stay, ...(form.log && TASKS[task].log ? { log: form.log } : {}) };
  tab = "";
  build();
}

function address() {
  const usual = values(task);
  const changed = Object.entries(form).filter(([name, value]) => (value ?? "") !== (usual[name] ?? "") && name !== "log");
  const all = new URLSearchParams({ task, ...Object.fromEntries(changed) });
  if (kept) all.set("beside", kept);
  return `#${all}`;
}

function recall() {
  const at = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  task = Object.hasOwn(TASKS, at.task ?? "") ? at.task : "train";
  kept = at.beside ?? null;
  delete at.task;
  delete at.beside;
  form = { ...values(task), ...at };
  build();
}

function send(wait = 200, step = false) {
  clearTimeout(timer);
  showPins();
  const now = address();
  if (now !== location.hash && !(location.hash === "" && now === "#task=train")) history[step ? "pushState" : "replaceState"](null, "", now);
  timer = setTimeout(answer, wait);
}

function say(said, wrong = false) {
  $("state").textContent = said;
  $("state").classList.toggle("error", wrong);
}

const inputs = () => [...document.querySelectorAll("#form .field :is(input, select)")];
const labels = () => {
  const found = Object.fromEntries(inputs().map((input) => [input.name, input.labels[0].textContent]));
  return { ...found, cluster: found.gpu };
};
const inForm = (said) => inWords(said, labels());
// a written answer in the words of the form; commands and files stay as they are
function reworded(box) {
  const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { currentNode: one } = texts;
    if (one.data.includes("--") && !one.parentElement.closest("pre, code")) one.data = inForm(one.data);
  }
}

// an error in the words of the form; it marks the field that it is about
function blame({ error = "", hint = "" }) {
  let first = null;
  for (const input of inputs()) {
    if (error && concerns(error, input.name, input.value.trim())) { input.setAttribute("aria-invalid", "true"); first ??= input; } else input.removeAttribute("aria-invalid");
  }
  if (first) first.closest("details")?.setAttribute("open", "");
  return `${first && !error.includes("--") ? `${first.labels[0].textContent}: ` : ""}${inForm(error)}${!hint ? "" : hint.includes("gpuscale ") ? first?.list ? "; the field lists what is known" : "" : `; ${inForm(hint)}`}`;
}

// --- the answer -------------------------------------------------------------------------------

async function answer() {
  const number = ++asked;
  const options = given(task, form, names);
  const question = ask("answer", TASKS[task].command, options);
  for (let i = queue.length; i--; ) if (queue[i].urgency > 0) queue.splice(i, 1);
  $("answer").classList.add("old");
  const made = await answered(question, 0);
  if (number !== asked) return;
  // a line is broken before an option, not within
  $("command").replaceChildren(...(made.command ?? "").split(/ (?=--)/).flatMap((part, i) => [i ? " " : "", node("span", { textContent: part })]));
  const wrong = blame(made);
  $("answer").classList.toggle("old", !!made.error);
  if (made.error) return say(wrong, true);
  if (ready) say("");
  latest = { question, made, options, result: made.answer.result };
  $("answer").classList.add("has");
  $("launch").hidden = !made.launch;
  $("launch").open = false;
  summary(made);
  document.title = `${made.answer.summary[0].value.split(";")[0].slice(0, 90)} – gpuscale`;
  knobs();
  pictures();
  detailsSoon();
  sideBySide();
}

const points = (made) => made.answer.summary;
const told = (p) => (p.note ? [node("b", { textContent: inForm(p.value) }), ` ${inForm(p.note)}`] : [inForm(p.value)]);
const row = (p) => [node("dt", { textContent: p.key }), node("dd", { className: p.tone }, ...told(p))];

function summary(made) {
  const [verdict, ...rest] = points(made);
  const warnings = made.answer.warnings.map((w) => node("p", { className: "warn", textContent: `Warning: ${inForm(w)}` }));
  $("head").replaceChildren(
    node("p", { className: `answer ${made.no ? "bad" : verdict.tone}`, textContent: inForm(verdict.value) }),
    node("dl", { className: "summary" }, ...rest.filter((p) => p.key !== "next").flatMap(row)), ...warnings);
}

// --- sliders ----------------------------------------------------------------------------------

function knobs() {
  const { knobs: all, figures } = TASKS[task];
  const { options } = latest;
  const usable = /^\d+$/.test(options.gpus ?? "1") && !options.deadline && !options.budget ? all : [];
  // where nothing fits, the slider goes on to where it may
  const further = (one) => (one.name === "gpus" && latest.result.fits === false ? 4 : 0);
  $("knobs").replaceChildren(...usable.map((one) => slider(one, steps(task, one, options, further(one)), figures)).filter(Boolean));
}

function slider(one, all, figures) {
  if (all.length < 2) return null;
  const mine = latest;
  const results = all.map(() => null);
  const at = Math.max(0, all.findIndex(({ question }) => keyOf(question) === keyOf(latest.question)));
  const here = Math.max(at, one.name in latest.options ? 0 : all.findIndex((s) => s.value === one.usual));
  const range = node("input", { type: "range", min: 0, max: all.length - 1, step: 1, value: here, id: `slide-${one.name}` });
  const said = node("output", { htmlFor: range.id });
  const boxes = figures.map(({ label }) => node("figure", {}, node("figcaption", { textContent: label }), node("div")));
  const [from, to] = [all[0], all.at(-1)].map((s) => shown(s.value, one.dim));
  const box = node("div", { className: "knob" }, node("label", { htmlFor: range.id }, `${one.label} `, said), range, node("p", { className: "note", textContent: `Nothing fits from ${from} to ${to}.` }), node("div", { className: "figures" }, ...boxes));
  const redraw = () => {
    const i = +range.value;
    said.textContent = shown(all[i].value, one.dim);
    range.setAttribute("aria-valuetext", said.textContent);
    box.classList.toggle("none", results.every((r) => r === false));
    figures.forEach((f, k) => {
      const rows = all.map((s, j) => ({ x: s.value, y: results[j] ? f.of(results[j]) : null }));
      const seen = rows.map((r) => r.y).filter((y) => y > 0);
      boxes[k].firstChild.replaceChildren(`${f.label} `, node("b", { textContent: rows[i].y != null ? shown(rows[i].y, f.dim) : results[i] === false ? "not possible" : "…" }));
      if (seen.length) along(boxes[k].lastChild, f, one, rows, all[i].value, Math.max(...seen) / Math.min(...seen) > 20);
    });
  };
  const later = soon(redraw);
  range.addEventListener("input", redraw);
  range.addEventListener("change", () => { form[one.name] = String(all[+range.value].value); if ($(one.name)) $(one.name).value = form[one.name]; send(0, true); });
  const order = all.map((_, i) => i).sort((a, b) => Math.abs(a - here) - Math.abs(b - here));
  for (const i of order) Promise.resolve(answered(all[i].question, 3)).then((made) => {
    if (mine !== latest) return;
    results[i] = made.error || made.answer.result.fits === false ? false : made.answer.result;
    later();
  });
  watch(box, redraw);
  later();
  return box;
}

// --- pictures ---------------------------------------------------------------------------------

const LABELS = { ttft: "First token", tpot: "Further tokens", step: "Time", memory: "Memory", "memory-time": "Memory over a step", timeline: "Timeline", layouts: "Layouts", limits: "Limits", sensitivity: "What helps", roofline: "Roofline", scaling: "Scaling", mfu: "MFU", pareto: "Pareto", levels: "Levels", bars: "Parts" };
const degrees = (l) => ["tp", "cp", "ep", "pp", "dp"].filter((k) => l[k] > 1 || k === "dp").map((k) => `${k.toUpperCase()} ${l[k]}`).join(" x ");
const settings = ({ layout: l }) => `${degrees(l)}, ZeRO ${l.zero_stage}, micro-batch ${l.micro_batch_size}${l.vpp > 1 ? `, ${l.vpp} chunks` : ""}`;
const pinsOf = ({ layout: l }) => ({ tp: l.tp, pp: l.pp, cp: l.cp, ep: l.ep, vpp: l.vpp, zero: l.zero_stage, micro_batch: l.micro_batch_size, recompute: l.recompute });
const SAID = { zero: "ZeRO", micro_batch: "micro-batch", recompute: "recompute", engine: "rollouts", rollout_tp: "rollout TP" };
const spoken = (pinned) => Object.entries(pinned).map(([name, value]) => `${SAID[name]} ${value}`).join(", ");

// all layouts of a search, as time against memory
function searched(result) {
  const found = (result.alternatives ?? []).filter((a) => a.fits && a.peak_bytes && a.step_s);
  const chosen = result.chosen?.layout || !result.layout ? result.chosen : { ...result, layout: result.layout };
  const all = [...(chosen?.step_s ? [chosen] : []), ...found].filter((r) => r.layout);
  return all.map((r) => ({ x: r.peak_bytes, y: r.step_s, label: `${settings(r)}${r.why ? `\n${r.why}` : ""}`, pins: pinsOf(r) }));
}

// each way to run a job without a search, and what is chosen
async function tried(options) {
  const all = await Promise.all(ways(task, options).map(async ({ pinned, question }) => ({ pinned, made: await answered(question, 3) })));
  const fit = all.filter(({ made }) => made.point?.fits).map(({ pinned, made: { point: r } }) => ({ x: r.peak_bytes, y: r.run_s ?? r.step_s, label: `${spoken(pinned)}${r.offload?.length ? ", offload" : ""}`, pins: pinned }));
  return fit.sort((a, b) => a.y - b.y);
}

function scatter(points, result) {
  if (points.length < 2) return null;
  const rows = points.map((p) => [p.x, p.y, p.label]);
  return {
    kind: "lines", key: "layouts", title: "Layouts: time against memory; a click pins one", choices: points, picked: [{ x: result.peak_bytes, y: TASKS[task].ways ? result.run_s ?? result.step_s : result.step_s }],
    x: { label: "memory of the fullest GPU", dim: "bytes" }, y: { label: TASKS[task].ways && result.run_s ? "the run" : "a step", dim: "s" }, marks: [{ axis: "x", value: result.capacity_bytes, label: "usable" }],
    series: [{ name: TASKS[task].ways ? "fastest" : "chosen", points: rows.slice(0, 1), markers: true }, { name: "others", points: rows.slice(1), markers: true }],
  };
}

async function pictures() {
  const mine = latest;
  const { options, question } = mine;
  const wanted = [
    answered(ask("charts", question.command, options), 1), answered(ask("events", question.command, options), 2),
    ...beside(task, options, mine.result).map((q) => answered(q, 2)),
  ];
  mine.charts = [];
  $("charts").hidden = false;
  const add = (charts) => {
    if (mine !== latest) return;
    for (const chart of charts) if (!mine.charts.some((c) => c.key === chart.key)) mine.charts.push(chart);
    tabsSoon();
  };
  const [made, events, ...others] = wanted;
  const whole = search(task, options);
  const found = whole ? Promise.resolve(answered(whole, 2)).then((b) => (b.answer ? searched(b.answer.result) : [])) : tried(options);
  found.then((all) => { const one = mine === latest && scatter(all, mine.result); if (one) add([one]); });
  Promise.resolve(made).then(({ charts = [] }) => add(charts.filter((c) => drawable(c) && !["timeline", "timeline-end", "alternatives"].includes(c.key))));
  Promise.resolve(events).then((all) => all.events?.length && add([stepped(all)]));
  for (const one of others) Promise.resolve(one).then(({ charts = [] }) => add(charts.filter((c) => drawable(c) && c.key !== "limits").map((c) => (c.key === "pareto" ? priced(c, mine.result) : c))));
}

// user speed against cost, where a price is known
function priced(chart, { usd_per_gpu_hour: usd }) {
  const cost = usd && ((speed) => (usd * 1e6) / 3600 / speed);
  const series = chart.series.map((one) => ({ ...one, points: one.points.map(([x, y, label]) => [x, cost ? cost(y) : y, label]) }));
  return { ...chart, series, title: `${chart.title}: speed of a user against ${cost ? "cost" : "that of a GPU"}; a click pins a layout`, y: cost ? { label: "USD per M output tokens", dim: "usd", log: true } : chart.y };
}

const ORDER = ["layouts", "pareto", "scaling", "step", "memory", "timeline", "roofline"];

function tabs() {
  const rank = (c) => (ORDER.indexOf(c.key) + 1 || 99);
  const all = [...latest.charts].sort((a, b) => rank(a) - rank(b));
  const now = all.find((c) => c.key === tab) ?? all[0];
  const focused = document.activeElement?.role === "tab";
  $("charts").hidden = !all.length;
  $("tabs").replaceChildren(...all.map((c) => {
    const on = c === now;
    const made = node("button", { type: "button", id: `tab-${c.key}`, textContent: LABELS[c.key] ?? c.title, tabIndex: on ? 0 : -1, onclick: () => { tab = c.key; view = null; inPanel = null; tabs(); } });
    made.setAttribute("role", "tab");
    made.setAttribute("aria-selected", on);
    made.setAttribute("aria-controls", "panel");
    return made;
  }));
  if (!now) return;
  if (focused) $(`tab-${now.key}`).focus();
  $("panel").setAttribute("aria-labelledby", `tab-${now.key}`);
  if (now !== inPanel) panel(now);
}
let inPanel = null; // the chart that is drawn

const tabsSoon = soon(tabs);

$("tabs").addEventListener("keydown", (e) => {
  const all = [...$("tabs").children];
  const to = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
  if (to) all[(all.indexOf(document.activeElement) + to + all.length) % all.length].click();
});

let redrawPanel = () => {};
function panel(chart) {
  inPanel = chart;
  const box = node("div", { className: "chart" });
  $("panel").replaceChildren(node("p", { className: "chart-title", textContent: chart.title }), box, ...(chart.note ? [node("p", { className: "note", textContent: chart.note })] : []));
  redrawPanel = () => {
    const row = $("tabs");
    const [{ left, right }, at] = [$(`tab-${chart.key}`), row].map((one) => one.getBoundingClientRect());
    if (left < at.left || right > at.right) row.scrollLeft += left - at.left - 20; // the chosen one is in sight
    const picked = [...(chart.picked ?? []), ...(chart.key === "layouts" && mate ? [mate] : [])];
    chart.hit = draw(box, chart, { view, picked });
  };
  redrawPanel();
  if (chart.kind === "gantt") zoomed(box, chart);
  if (chart.choices) pick(box, chart);
  if (chart.key === "pareto" || chart.key === "scaling") box.addEventListener("click", (e) => {
    const label = chart.hit(e)?.label ?? "";
    const tp = task === "serve" && /^TP (\d+)$/.exec(label);
    if (tp) { form.tp = tp[1]; return send(0, true); }
    const n = /([\d,]+)$/.exec(label) ?? /^([\d,]+) GPUs/.exec(label);
    if (n && task === "train") { form.gpus = n[1].replaceAll(",", ""); delete form.deadline; delete form.budget; build(); send(0, true); }
  });
}

function pick(box, chart) {
  const pin = ({ pins }) => {
    for (const [name, value] of Object.entries(pins)) form[name] = String(value);
    build();
    send(0, true);
  };
  box.addEventListener("click", (e) => {
    const point = chart.hit(e);
    const r = point && chart.choices.find((one) => one.x === point.x && one.y === point.y);
    if (r) pin(r);
  });
  const list = node("select", { id: "pin-list" }, new Option("Pin a layout…", ""), ...chart.choices.map((r, i) => new Option(`${r.label.split("\n")[0]}: ${shown(r.y, "s")}, ${shown(r.x, "bytes")}`, i)));
  list.setAttribute("aria-label", "Pin a layout");
  list.addEventListener("change", () => list.value && pin(chart.choices[+list.value]));
  $("panel").append(list);
}

function zoomed(box, chart) {
  const whole = [chart.start ?? 0, chart.total];
  const set = (a, b) => {
    const long = Math.min(whole[1] - whole[0], Math.max((whole[1] - whole[0]) / 4000, b - a));
    const from = Math.min(Math.max(whole[0], a), whole[1] - long);
    view = [from, from + long];
    redrawPanel();
  };
  const now = () => view ?? whole;
  const zoom = (factor, share = 0.5) => { const [a, b] = now(); const mid = a + (b - a) * share; set(mid - (mid - a) * factor, mid + (b - mid) * factor); };
  const move = (share) => { const [a, b] = now(); set(a + (b - a) * share, b + (b - a) * share); };
  const button = (text, name, go) => { const made = node("button", { type: "button", textContent: text, onclick: go }); made.setAttribute("aria-label", name); return made; };
  $("panel").append(node("div", { className: "buttons" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("←", "Earlier", () => move(-0.4)), button("→", "Later", () => move(0.4)), button("Whole step", "Whole step", () => set(...whole))));
  box.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && Math.abs(e.deltaY) > Math.abs(e.deltaX) && !e.shiftKey && !view && e.deltaY > 0) return;
    e.preventDefault();
    const { left, width } = box.getBoundingClientRect();
    zoom(e.deltaY > 0 ? 1.25 : 0.8, (e.clientX - left) / width);
  }, { passive: false });
  let from = null;
  box.addEventListener("pointerdown", (e) => { from = { x: e.clientX, at: now() }; });
  box.addEventListener("pointermove", (e) => {
    if (!from || !e.buttons) return;
    const [a, b] = from.at;
    const by = ((from.x - e.clientX) / box.clientWidth) * (b - a);
    if (Math.abs(e.clientX - from.x) > 3) set(a + by, b + by);
  });
  addEventListener("pointerup", () => (from = null));
}

// charts are redrawn for a new width, not stretched
function watch(box, redraw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const wide = Math.round(entry.contentRect.width);
    if (width && wide !== width) redraw();
    width = wide;
  }).observe(box);
}
watch($("panel"), () => redrawPanel());

// --- two jobs side by side --------------------------------------------------------------------

let mate = null; // the point of the job beside in the picture of layouts
async function sideBySide() {
  $("keep").textContent = kept ? "Keep this one beside" : "Keep beside";
  $("beside").hidden = !kept;
  mate = null;
  if (!kept) return;
  const mine = latest;
  const { task: other = "train", ...its } = Object.fromEntries(new URLSearchParams(kept));
  const made = await answered(ask("answer", TASKS[other].command, given(other, { ...values(other), ...its }, names)), 1);
  if (mine !== latest || !kept) return;
  const cells = (p) => (p ? told(p) : ["–"]);
  const both = made.error ? [] : [points(made), points(mine.made)];
  const keys = [...new Set(both.flat().map((p) => p.key))].filter((key) => !["next", "taken"].includes(key));
  const change = made.error || other !== task ? [] : TASKS[task].figures.map((f) => [f, f.of(made.answer.result), f.of(mine.result)]).filter(([, a, b]) => a && b);
  const drop = node("button", { type: "button", textContent: "Remove", onclick: () => { kept = null; send(0, true); } });
  const open = node("button", { type: "button", textContent: "Change places", onclick: () => { const now = address(); const to = kept; const mineNow = new URLSearchParams(now.slice(1)); mineNow.delete("beside"); location.hash = `#${new URLSearchParams([...new URLSearchParams(to), ["beside", mineNow.toString()]])}`; } });
  const head = (name) => { const made = node("th", { textContent: name }); made.scope = "col"; return made; };
  const line = (key, a, b) => { const th = node("th", { textContent: key }); th.scope = "row"; return node("tr", {}, th, node("td", {}, ...a), node("td", {}, ...b)); };
  const table = node("table", {}, node("thead", {}, node("tr", {}, node("td"), head("Kept"), head("Now"))), node("tbody", {},
    ...keys.map((key) => line(key, cells(both[0]?.find((p) => p.key === key)), cells(both[1]?.find((p) => p.key === key)))),
    ...change.map(([f, a, b]) => line(f.label, [node("b", { textContent: shown(a, f.dim) })], [node("b", { textContent: shown(b, f.dim) }), ` × ${+(b / a).toPrecision(3)}`]))));
  $("beside").replaceChildren(node("h2", { textContent: "Two jobs side by side" }), ...(made.error ? [node("p", { textContent: made.error })] : [table]), node("div", { className: "buttons" }, open, drop));
  const r = made.answer?.result;
  mate = r?.peak_bytes && r.step_s && other === task ? { x: r.peak_bytes, y: r.step_s } : null;
  if (mate) redrawPanel();
}

// --- details, files ---------------------------------------------------------------------------

const DETAILS = {
  figures: "All figures", step: "Where the step goes", memory: "Memory", limits: "Limits of each parallelism", alternatives: "Other layouts",
  layouts: "Layouts", help: "What would help", remedies: "What would make it fit", search: "What was searched", cases: "All cases",
  launch: "Command that starts it", levels: "Levels of the network", causes: "Causes", test: "What to test next", how: "How it comes about, inputs",
};
async function details() {
  const mine = latest;
  const made = await answered(ask("details", mine.question.command, mine.options), 2);
  if (mine !== latest || !made.details) return;
  const open = new Set([...$("details").querySelectorAll("details[open]")].map((d) => d.dataset.name));
  $("details").replaceChildren(...Object.entries(made.details).filter(([, html]) => html).map(([name, html]) => {
    const inside = node("div", { innerHTML: html }); // written and escaped by the planner
    for (const table of inside.querySelectorAll("table.sortable")) sortable(table);
    reworded(inside);
    const box = node("details", { open: open.has(name) }, node("summary", { textContent: DETAILS[name] ?? name }), inside);
    box.dataset.name = name;
    return box;
  }));
}

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((th, column) => th.querySelector("button")?.addEventListener("click", () => {
    const up = th.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (r) => r.cells[column].dataset.v ?? r.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const less = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y);
      return up ? less : -less;
    });
    table.tBodies[0].append(...rows);
  }));
}

const detailsSoon = soon(details);
const made = (what) => answered(ask(what, latest.question.command, latest.options), 0);

async function take(file) {
  if (!file || file.size > 2e7) return say("A log or a config.json of up to 20 MB can be read here.", true);
  const safe = file.name.replace(/[^\w.-]/g, "_");
  say(`Reading ${safe}…`);
  worker.postMessage({ id: ++count, file: { name: safe, content: await file.arrayBuffer() } });
}

async function save(what) {
  if (!latest) return;
  const file = await made(what);
  if (file.error) return say(file.error, true);
  const link = node("a", { href: URL.createObjectURL(new Blob([file.text], { type: file.type })), download: file.file });
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

// once the planner is there, the browser keeps all files for a visit without a network
function keepForLater() {
  if ("serviceWorker" in navigator && location.protocol.startsWith("http")) navigator.serviceWorker.register("sw.js").catch(() => {});
}

$("keep").onclick = () => { kept = null; kept = address().slice(1); send(0, true); };
$("copy-command").onclick = (e) => copy(e.target, $("command").textContent);
$("copy-link").onclick = (e) => copy(e.target, location.href);
$("copy-json").onclick = (e) => latest && copy(e.target, JSON.stringify(latest.made.answer, null, 2));
$("save-page").onclick = () => save("page");
$("save-picture").onclick = () => save("picture");
$("launch").addEventListener("toggle", async () => {
  if (!$("launch").open || !latest) return;
  const file = await made("launch");
  $("launch-text").textContent = file.text ?? file.error;
});
$("form").addEventListener("input", (e) => {
  if (e.target.type === "file") return void take(e.target.files[0]);
  if (e.target.name === "task") { switchTo(e.target.value); return send(0, true); }
  if (e.target.name) form[e.target.name] = e.target.value.trim();
  send();
});
$("form").addEventListener("change", (e) => { if (e.target.name && e.target.name !== "task" && e.target.type !== "file") send(0, true); });
$("form").addEventListener("submit", (e) => { e.preventDefault(); send(0, true); });
addEventListener("popstate", () => { recall(); send(0); });
addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("drop"); });
addEventListener("dragleave", (e) => { if (!e.relatedTarget) document.body.classList.remove("drop"); });
addEventListener("drop", (e) => { e.preventDefault(); document.body.classList.remove("drop"); take(e.dataTransfer.files[0]); });
new IntersectionObserver(([entry]) => (document.querySelector(".asked").hidden = entry.isIntersecting)).observe($("form"));

$("tasks").append(...Object.entries(TASKS).map(([value, { title }]) => node("label", {}, node("input", { type: "radio", name: "task", value }), node("span", { textContent: title }))));
const wide = matchMedia("(min-width: 56rem)");
const unfold = () => ($("own").open = wide.matches);
wide.addEventListener("change", unfold);
unfold();
const first = JSON.parse($("first").textContent);
if (first) { names = first.names; know(names.words); seed(first.answers); offer(); }
recall();
if (first) answer();
fetch("first.json").then((r) => (r.ok ? r.json() : [])).then((rows) => { seed(rows); if (!latest && !$("state").classList.contains("error")) answer(); }).catch(() => {});

// Charts of an answer: records of the planner (the same that files and notebooks draw) as marks of
// Observable Plot, drawn for the width that there is, and redrawn when it changes.
let Plot = null;
export const loaded = import("./plot.js").then((all) => { Plot = all; }, () => {}); // without it there are no charts

const SERIES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c", "#332288"];
let words = {};
export const know = (meanings) => (words = meanings);
const paint = (word, i) => (words[word] ? `var(--m-${words[word]})` : SERIES[i % SERIES.length]);

const STEPS = {
  s: [[1e-6, "µs", 1e-3], [1e-3, "ms", 1], [1, "s", 120], [60, "min", 7200], [3600, "h", 172800], [86400, "d", Infinity]],
  bytes: [[1, "B", 1e3], [1e3, "kB", 1e6], [1e6, "MB", 1e9], [1e9, "GB", 1e12], [1e12, "TB", Infinity]],
  usd: [[1, "USD", 1e3], [1e3, "kUSD", 1e6], [1e6, "MUSD", Infinity]],
  count: [[1, "", 1e4], [1e3, "K", 1e6], [1e6, "M", 1e9], [1e9, "B", 1e12], [1e12, "T", Infinity]],
  flop_per_s: [[1e9, "GFLOP/s", 1e12], [1e12, "TFLOP/s", 1e15], [1e15, "PFLOP/s", Infinity]],
  bytes_per_s: [[1e6, "MB/s", 1e9], [1e9, "GB/s", 1e12], [1e12, "TB/s", Infinity]],
};

// A value with its unit, three digits.
export function shown(value, dim = "") {
  if (value == null || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (dim === "frac") return `${+(100 * value).toPrecision(3)} %`;
  const [unit, name] = STEPS[dim]?.find(([, , end]) => Math.abs(value) < end) ?? [1, ""];
  const number = (+(value / unit).toPrecision(3)).toLocaleString("en");
  return name.length === 1 && dim === "count" ? number + name : `${number} ${name}`.trim();
}

const unitOf = (high, dim) => (dim === "frac" ? [0.01, "%"] : STEPS[dim]?.find(([, , end]) => high < end) ?? [1, ""]);
// round values between two ends, in the unit that the larger one is shown in
function even(low, high, most, dim) {
  const [unit] = unitOf(high, dim);
  const raw = (high - low) / most / unit || 1;
  const ten = 10 ** Math.floor(Math.log10(raw));
  const far = (m) => Math.abs(Math.log((m * ten) / raw));
  const by = [1, 2, 5, 10].reduce((best, m) => (far(m) < far(best) ? m : best)) * ten;
  return Array.from({ length: Math.max(0, Math.floor(high / unit / by) - Math.ceil(low / unit / by) + 1) }, (_, i) => (Math.ceil(low / unit / by) + i) * by * unit);
}
// in powers of 2 every tick keeps its text: those of 10 lose it at 8.64e6 s, which are 100 d
const kind = (log) => (log ? { type: "log", base: 2 } : { type: "linear" });
// ticks of a line scale share a unit
function ticked(ticks, { dim, log }) {
  const [unit, name] = unitOf(Math.max(...ticks.map(Math.abs)), dim);
  const number = (v) => (+(v / unit).toPrecision(3)).toLocaleString("en");
  return (v) => (log || !v ? shown(v, dim) : name.length === 1 && dim === "count" ? number(v) + name : `${number(v)} ${name}`.trim());
}
const scale = (axis, ticks, more = {}) => ({ label: axis.label, ...kind(axis.log), ticks, tickFormat: ticked(ticks, axis), ...more });
// room for the words left of a chart
const room = (words, width, most) => Math.min(width * most, 20 + 7.3 * Math.max(...words.map((word) => word.length)));
// the key of colours, above a chart
function key(names, colours) {
  const made = document.createElement("p");
  made.className = "key";
  names.forEach((name, i) => {
    const one = document.createElement("span");
    one.textContent = name;
    one.style.setProperty("--c", colours[i]);
    made.append(one);
  });
  return made;
}
function logTicks(low, high, dim) {
  const found = [1, 2, 5].flatMap((m) => Array.from({ length: 40 }, (_, k) => m * 10 ** (k - 15)));
  const units = (STEPS[dim] ?? [[1]]).map(([unit], i, all) => [unit, all[i + 1]?.[0] ?? Infinity]);
  return units.flatMap(([unit, above], i) => found.map((v) => v * unit).filter((v) => (v >= unit || !i) && v < above)).filter((v) => v >= low && v <= high).sort((a, b) => a - b);
}
// one picture with one name for those who hear the page
function named(svg, title) {
  for (const part of svg.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
}
const ends = (found) => [Math.min(...found), Math.max(...found)];
const few = (ticks, most) => ticks.filter((_, i) => i % Math.ceil(ticks.length / most) === 0);
const tipped = (channels) => ({ ...channels, tip: { fontSize: 13, lineHeight: 1.25, maxRadius: 30 } });

function lines({ x, y, series, marks }, width, picked) {
  const rows = series.flatMap((one, i) => one.points.map(([px, py, label]) => ({ x: px, y: py, label, name: one.name, i, dots: one.markers, drawn: one.line })));
  const named = series.filter((one) => one.name).map((one) => one.name);
  const spread = Math.max(...rows.map((r) => r.y)) / Math.min(...rows.map((r) => r.y));
  const all = (axis) => ends([...rows, ...(picked ?? [])].map((r) => r[axis]).concat((marks ?? []).filter((m) => m.axis === axis).map((m) => m.value)));
  const [[left, right], [low, high]] = [all("x"), all("y")];
  const across = x.at?.length ? x.at : x.log ? few(logTicks(left, right, x.dim), width / 80) : even(left, right, Math.max(3, width / 110), x.dim);
  const up = y.log ? few(logTicks(low, high, y.dim), 7) : even(spread > 3 ? 0 : low, high, 6, y.dim);
  const say = (r) => [r.label, r.name, `${x.label || "x"} ${shown(r.x, x.dim)}`, `${y.label || "y"} ${shown(r.y, y.dim)}`].filter(Boolean).join("\n");
  return {
    points: rows.filter((r) => r.dots),
    x: scale(x, across), y: scale(y, up, { grid: true, zero: !y.log && spread > 3 }), marginLeft: room(up.map(ticked(up, y)), width, 0.5),
    color: { domain: named, range: named.map((n, i) => SERIES[i % SERIES.length]) }, inset: 8,
    marks: [
      ...(marks ?? []).map((m) => (m.axis === "x" ? Plot.ruleX : Plot.ruleY)([m.value], { stroke: "var(--no)", strokeDasharray: "4 3" })),
      ...(marks ?? []).map((m) => Plot.text([m.label], { [m.axis]: m.value, frameAnchor: m.axis === "x" ? "top" : "right", dy: m.axis === "x" ? -8 : -7, textAnchor: "end", fill: "var(--no)", stroke: "var(--bg)", strokeWidth: 4 })),
      Plot.line(rows.filter((r) => r.drawn), { x: "x", y: "y", z: "i", stroke: (r) => r.name || named[0] || "", strokeWidth: 2 }),
      Plot.dot(rows.filter((r) => r.dots), { x: "x", y: "y", fill: (r) => r.name || "", r: 4.5, stroke: "var(--bg)" }),
      ...(picked ?? []).map((p) => Plot.dot([p], { x: "x", y: "y", r: 9, stroke: "var(--fg)", strokeWidth: 2 })),
      Plot.tip(rows, Plot.pointer({ x: "x", y: "y", title: say, fontSize: 13, maxRadius: 40 })),
    ],
  };
}

function stack({ axis, parts, rows, limit }, width) {
  const bars = rows.flatMap(([row, amounts]) => amounts.map((value, i) => ({ row, part: parts[i], value, i }))).filter((b) => b.value > 0);
  const used = parts.filter((part) => bars.some((b) => b.part === part));
  const across = even(0, Math.max(limit?.[0] ?? 0, ...rows.map(([, amounts]) => amounts.reduce((a, b) => a + b, 0))), Math.max(3, width / 110), axis.dim);
  return {
    height: 70 + rows.length * Math.max(38, Math.min(64, 200 / rows.length)), marginLeft: room(rows.map(([row]) => row), width, 0.58),
    x: scale(axis, across, { grid: true }), y: { label: null, domain: rows.map(([row]) => row) },
    color: { domain: used, range: used.map((p) => paint(p, parts.indexOf(p))) },
    marks: [
      Plot.barX(bars, Plot.stackX(tipped({ x: "value", y: "row", fill: "part", title: (b) => `${b.part}${b.row ? `, ${b.row}` : ""}\n${shown(b.value, axis.dim)}`, insetTop: 3, insetBottom: 3 }))),
      ...(limit ? [Plot.ruleX([limit[0]], { stroke: "var(--no)", strokeDasharray: "4 3", strokeWidth: 2 }), Plot.text([limit[1]], { x: limit[0], frameAnchor: "top", dy: -10, dx: -4, textAnchor: "end", fill: "var(--no)" })] : []),
      Plot.ruleX([0]),
    ],
  };
}

function gantt({ lanes, kinds, total, start = 0 }, width, view) {
  const spans = lanes.flatMap(([lane, held]) => held.map((s) => ({ lane, kind: kinds[s.kind][0], a: s.start, b: s.start + s.length, label: s.label })));
  const [from, to] = view ?? [start, total];
  const seen = spans.filter((s) => s.b > from && s.a < to).map((s) => ({ ...s, a: Math.max(s.a, from), b: Math.min(s.b, to), long: s.b - s.a }));
  const used = kinds.map(([name]) => name).filter((name) => spans.some((s) => s.kind === name));
  const across = even(from, to, Math.max(3, width / 110), "s");
  return {
    height: 70 + 30 * lanes.length, marginLeft: room(lanes.map(([lane]) => lane), width, 0.36),
    x: { domain: [from, to], label: "time in the step", tickFormat: ticked(across, { dim: "s" }), ticks: across }, y: { label: null, domain: lanes.map(([lane]) => lane) },
    color: { domain: used, range: used.map(paint) },
    marks: [
      Plot.barX(seen, tipped({ x1: "a", x2: "b", y: "lane", fill: "kind", insetTop: 3, insetBottom: 3, title: (s) => `${s.label ? `${s.label}, ` : ""}${s.kind}, ${s.lane}\n${shown(s.long, "s")}` })),
    ],
  };
}

const DRAW = { lines, stack, gantt };
export const drawable = (chart) => chart.kind in DRAW;

// Draws a chart into a box; `view` is the part of a timeline, `picked` points to ring. Returns what
// finds the point under a click.
export function draw(box, chart, { view, picked, height } = {}) {
  if (!Plot) return () => null;
  const width = Math.max(260, box.clientWidth);
  const { points, ...spec } = DRAW[chart.kind](chart, width, chart.kind === "gantt" ? view : picked);
  const made = Plot.plot({ width, height: height ?? Math.min(460, Math.max(280, width * 0.5)), marginLeft: 70, marginRight: 18, marginBottom: 42, ...spec, style: { fontSize: "13px" } });
  named(made, chart.title);
  const { domain, range } = spec.color;
  box.replaceChildren(...(domain.length > 1 ? [key(domain, range)] : []), made);
  return hit;

  // the point that a click is meant for: the nearest one within a finger's width
  function hit(event) {
    const { left, top, width: wide } = made.getBoundingClientRect();
    const [x, y] = [made.scale("x"), made.scale("y")];
    const far = (p) => Math.hypot(x.apply(p.x) - ((event.clientX - left) * width) / wide, y.apply(p.y) - ((event.clientY - top) * width) / wide);
    const found = (points ?? []).reduce((best, p) => (far(p) < far(best) ? p : best), points?.[0]);
    return found && far(found) < 24 ? found : null;
  }
}

const LANES = { pp: "PP out", "pp-before": "PP in", "pp-after": "PP back" };
// The whole step as lanes, one a stage and track.
export function stepped({ events, total_s }) {
  const kinds = [...new Set(events.map((e) => e[2]))];
  const lanes = new Map();
  for (const [stage, track, kind, start, length, batch] of [...events].sort((a, b) => a[0] - b[0] || (a[1] > b[1] ? 1 : -1))) {
    const name = `stage ${stage + 1}${track === "compute" ? "" : ` ${LANES[track] ?? track.toUpperCase()}`}`;
    if (!lanes.has(name)) lanes.set(name, []);
    lanes.get(name).push({ start, length, kind: kinds.indexOf(kind), label: batch >= 0 ? `micro-batch ${batch + 1}` : "" });
  }
  return { kind: "gantt", key: "timeline", title: "One step in time", total: total_s, kinds: kinds.map((k) => [k, ""]), lanes: [...lanes] };
}

// A figure along a slider, what is chosen on it.
export function along(box, { label, dim }, one, rows, value, log) {
  if (!Plot) return;
  const known = rows.filter((r) => r.y != null);
  const width = Math.max(120, box.clientWidth);
  const [low, high] = ends(known.map((r) => r.y));
  const ticks = log ? few(logTicks(low, high, dim), 4) : even(0, high, 3, dim);
  const told = ticked(ticks, { dim, log });
  const said = rows.map((r) => shown(r.x, one.dim).length);
  const made = Plot.plot({
    width, height: 112, marginLeft: 14 + 6.6 * Math.max(2, ...ticks.map((v) => told(v).length)), marginRight: 16, marginBottom: 26, marginTop: 14, style: { fontSize: "12px" },
    x: { ...kind(true), label: null, ticks: few(rows.map((r) => r.x), width / (24 + 8 * Math.max(...said))), tickFormat: (v) => shown(v, one.dim), domain: [rows[0].x, rows.at(-1).x] },
    y: { label: null, ticks, grid: true, tickFormat: told, ...kind(log), zero: !log },
    marks: [
      Plot.line(known, { x: "x", y: "y", stroke: "var(--m-forward)", strokeWidth: 2 }),
      Plot.dot(known, { x: "x", y: "y", fill: "var(--m-forward)", r: (r) => (r.x === value ? 6 : 3) }),
      Plot.ruleX([value], { stroke: "var(--soft)", strokeDasharray: "3 3" }),
    ],
  });
  named(made, label);
  box.replaceChildren(made);
}

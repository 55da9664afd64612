"""The answer of a launch check as blocks: what files say by themselves, then what follows of it.

What it does not repeat is covered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.answers.launch_check.records import Checked, LaunchReport
from gpuscale.answers.summary import chance_tone
from gpuscale.answers.training.plan_text import degrees, percent, recompute, seconds
from gpuscale.core.layout import PRECISIONS, RECOMPUTE, Layout
from gpuscale.core.records import fields, replace
from gpuscale.core.verdict import said
from gpuscale.core.words import DEGREES, gb
from gpuscale.io.presets import known_names
from gpuscale.launch.found import Found, Said
from gpuscale.launch.read.kinds import KINDS
from gpuscale.launch.secrets import Hidden
from gpuscale.render.document import Block, Column, Document, Drawn, Facts, Point, Table, Text

if TYPE_CHECKING:
    from gpuscale.answers.launch_check import LaunchCheck


def said_rows(said: Said, method: str) -> list[tuple[str, str, str]]:
    """Show what the files say, as facts."""
    if method == "serve":
        return _served_rows(said)
    rows = [
        ("machines", _machines(said), "as the files say"),
        ("layout", _said_layout(said), method),
        ("batch", _batch(said), ""),
        ("samples", ", ".join(_worded(said.rl)), ""),
        ("precision", said.precision or "", ""),
    ]
    return [row for row in rows if row[1]]


def _served_rows(said: Said) -> list[tuple[str, str, str]]:
    """Show what the files say of a server."""
    named = (("TP", said.tp), ("PP", said.pp), ("DP", said.dp or 1), ("EP", said.ep or 1))
    parts = [f"{name} {n}" for name, n in named if n > 1]
    parts += [f"{k.upper()} {v}" for k, v in said.unread.items() if k in ("tp", "pp", "dp")]
    pools = str(said.serves.get("disagg", "")).replace("+", " + ")
    rest = _worded({k: v for k, v in said.serves.items() if k != "disagg"})
    share = said.memory_utilization
    rows = [
        ("machines", _machines(said), "as the layout makes them"),
        ("layout", f"{pools} as pools" if pools else ", ".join(parts) or "TP 1", "serve"),
        ("weights", said.weights or "", "by the line"),
        ("cache", said.kv or "", ""),
        ("context", f"{said.seq_len:,} tokens" if said.seq_len else "", ""),
        ("sequences", f"{said.max_seqs:,} at a time" if said.max_seqs else "", ""),
        ("memory", f"{100 * share:g} %" if share else "", "of the GPU's, as the engine counts it"),
        ("more", ", ".join(rest), ""),
    ]
    return [row for row in rows if row[1]]


def _worded(table: Mapping[str, int | str | bool]) -> list[str]:
    """Show options by their words; one that is on by its name alone."""
    return [k.replace("_", " ") + ("" if v is True else f" {v}") for k, v in table.items()]


def _machines(said: Said) -> str:
    if said.n_gpus:
        return f"{said.n_gpus:,} GPU{'s' if said.n_gpus > 1 else ''}"
    parts = []
    if said.n_nodes:
        parts.append(f"{said.n_nodes:,} node{'s' if said.n_nodes > 1 else ''}")
    if said.gpus_per_node:
        parts.append(f"{said.gpus_per_node} GPU{'s' if said.gpus_per_node > 1 else ''} a node")
    return ", ".join(parts)


def _said_layout(said: Said) -> str:
    named = {**DEGREES, "dp_replicate": "replicas"}
    parts = [f"{word} {n}" for f, word in named.items() if (n := getattr(said, f) or 1) > 1]
    parts += [f"{k.upper()} {v}" for k, v in said.unread.items() if k in DEGREES]
    own = "as its recipe says" if "recipe" in said.unread else "data parallel alone"
    parts = parts or [said.unread.get("layout", own)]
    if said.zero_stage is not None:
        parts.append(f"ZeRO-{said.zero_stage}")
    if said.recompute and said.recompute != "none":
        every = f" of one layer in {n}" if (n := said.recompute_every or 1) > 1 else ""
        parts.append(f"{said.recompute} recompute{every}")
    offloaded = ("optimizer", said.offload_optimizer), ("parameters", said.offload_parameters)
    if moved := " and ".join(word for word, on in offloaded if on):
        parts.append(f"{moved} offloaded")
    parts += [f"rank {said.lora_rank}"] if said.lora_rank else []
    parts += [f"weights {said.weights}"] if said.weights else []
    return ", ".join(parts)


BATCH = {
    "micro_batch_size": "micro-batch",
    "accumulation": "accumulation",
    "global_batch_size": "global batch",
    "seq_len": "sequences of",
}


def _batch(said: Said) -> str:
    parts = [f"{word} {n:,}" for field, word in BATCH.items() if (n := getattr(said, field))]
    parts += [f"{word} {said.unread[f]}" for f, word in BATCH.items() if f in said.unread]
    return ", ".join(parts)


def asked_otherwise(found: Found, n_gpus: int | None) -> str:
    """Say how to ask about a program whose options are not known here."""
    named = (
        ("--gpus", n_gpus or "N"),
        ("--seq", found.seq_len or "LENGTH"),
        ("--micro-batch", found.micro_batch_size or "B"),
    )
    options = " ".join(f"{option} {value}" for option, value in named)
    script = found.places.get("script", "the program").rsplit("/", 1)[-1]
    model = found.model_name or "MODEL"
    ask = f"`gpuscale memory {model} {options}`"
    ask = f"give {script} with this file, or ask {ask}" if found.program else f"{ask} asks so"
    return f"how {script} shards and batches its model: {ask}"


LANGUAGE_ALONE = (
    "The model sees images; its language part alone is predicted: not what a vision tower "
    "computes, keeps or trains, and images count as the tokens of the length."
)


def document_of(checked: Checked) -> Document:
    """Put a report into words."""
    r, asked = checked.report, checked.asked
    head: list[Block] = [Text(_headline(r))]
    if r.method != "serve" and any("vision tower" in told for told in checked.warnings):
        head.append(Text(LANGUAGE_ALONE))
    if r.layout is not None and not checked.blocks:
        rows = _facts(r, asked)
    else:
        what = "" if r.kind in ("deepspeed", "accelerate", "program") else r.method
        judged = not r.missing and (r.method == "serve" or r.fits is not None)
        rows = [*([_cluster(r, asked)] if judged else []), *said_rows(r.said, what), *_best_row(r)]
    details: dict[str, list[Block]] = {
        "figures": [*head, Facts(rows)],
        "rules": _rules(r),
        "unknown": _unknown(r),
        "notes": [Text("Note:\n" + "\n".join(f"- {n}" for n in r.notes))] if r.notes else [],
        "change": _better(r),
        "answer": list(checked.blocks),
    }
    return Document.layered(
        "launch-check",
        {"files": list(asked.file), "cluster": asked.where, "model": r.model, "n_gpus": r.n_gpus},
        r,
        _summary(r, rows, details),
        details,
        warnings=checked.warnings,
        answered_no=not r.can_launch or r.fits is False,
        terms=checked.terms,
    )


def no_launch(asked: LaunchCheck, why: str) -> Document:
    """Let a file pass that starts nothing, as hooks want it."""
    said = f"{why}: passed."
    inputs = {"files": list(asked.file)}
    return Document("launch-check", inputs, {"kind": "", "note": why}, [Text(said)])


def _rules(r: LaunchReport) -> list[Block]:
    """Say what is missing, and which rules it breaks."""
    listed = (("Not predicted; missing is", r.missing), ("It cannot be launched:", r.broken))
    return [Text("\n- ".join([head, *items])) for head, items in listed if items]


def _unknown(r: LaunchReport) -> list[Block]:
    """Say what was not understood, and what cannot be known without running it."""
    blocks: list[Block] = []
    if r.not_understood:
        shown = ", ".join(r.not_understood[:20])
        who = f"{r.version} does not know" if r.version else "are not understood"
        blocks.append(Text(f"Options that {who}: {shown}"))
    if r.unresolved:
        shown = ", ".join(sorted(r.unresolved, key=lambda one: not one.startswith("if "))[:20])
        blocks.append(Text(f"Not known without running it (--var NAME=VALUE says it): {shown}"))
    return blocks


def _summary(
    r: LaunchReport, rows: Sequence[tuple[str, str, str]], details: Mapping[str, Sequence[Block]]
) -> list[Point]:
    """Verdict, figures, what is missing or broken, what would change it."""
    tone = "bad" if not r.can_launch or r.fits is False else "good" if r.fits else ""
    if r.can_launch and r.fits_probability and chance_tone(r.fits_probability) == "near":
        tone = "near"
    points = [Point("verdict", _headline(r), tone=tone)]
    served = details["answer"] if r.method == "serve" else ()
    points += [Point("served", b.text) for b in served if isinstance(b, Text)][:1]
    points += [Point(SHORTER.get(label, label), *rest) for label, *rest in rows[:8] if label]
    points += [Point("breaks", "; ".join(r.broken[:3]), tone="bad")] if r.broken else []
    points += [Point("missing", "; ".join(r.missing))] if r.missing else []
    if r.not_understood:
        points.append(Point("unknown", ", ".join(r.not_understood[:6]), "--show unknown"))
    points += [Point("note", note) for note in r.notes[:2]]
    if details["change"]:
        names = (c.field.upper() if len(c.field) < 4 else c.field for c in r.changes)
        words = ", ".join(
            f"{n} {c.have} -> {c.best}" for n, c in zip(names, r.changes, strict=True)
        )
        words = words.replace("zero_stage", "ZeRO").replace("_", " ").replace("None", "none")
        points.append(Point("would help", words, "--show change"))
    return points


SHORTER = {
    "step, expected": "step",
    "memory per GPU": "memory",
    "best on these GPUs": "best",
    "fastest that fits": "best that fits",
    "best of a search": "best",
}
"""Labels of figures in a summary."""


def _headline(r: LaunchReport) -> str:
    kind = KINDS[r.kind].title
    size = f" ({r.n_params / 1e9:,.1f}B)" if r.n_params else ""
    count = "one GPU" if r.n_gpus == 1 else f"{r.n_gpus:,} GPUs" if r.n_gpus else ""
    what = r.model or ("any model" if r.kind in ("deepspeed", "accelerate") else "a model")
    head = f"{kind}: {what}{size}{' on ' * bool(count)}{count}"
    if not r.can_launch:
        return f"{head} breaks {len(r.broken)} rule{'s' if len(r.broken) > 1 else ''}: see below."
    if r.fits is False and r.peak_bytes is not None:
        trains = (r.fits_probability or 0.0) > 0.5  # so that it is the engine that has no room
        why = "its engine has no room for a sequence" if trains else _verdict(r)
        return f"{head} can start but {why}: {gb(r.peak_bytes)} on the fullest GPU."
    if r.missing:
        return f"{head}, as far as the files say it:"
    if r.step_s is None:
        return f"{head}{'' if r.fits else ' does not fit'}:"
    mfu = f", MFU {percent(r.mfu)}" if r.mfu is not None else ""
    verdict = _verdict(r)
    near = "" if verdict.startswith("fits") else f" and {verdict}"
    return f"{head} can be launched{near}: {seconds(r.step_s or 0)} a step{mfu}."


def _verdict(r: LaunchReport) -> str:
    """Say whether it fits, and how likely."""
    return said(r.fits_probability if r.fits_probability is not None else float(bool(r.fits)))


def _cluster(r: LaunchReport, asked: LaunchCheck) -> tuple[str, str, str]:
    """Machines, and who says them."""
    named = "as the files say" if r.gpu and asked.gpu == r.gpu else ""
    if not (asked.cluster or asked.gpu):
        named = "taken: --cluster or --gpu says another"
    return ("cluster", asked.where, named)


def _facts(r: LaunchReport, asked: LaunchCheck) -> list[tuple[str, str, str]]:
    rows = [_cluster(r, asked)]
    lay = r.layout
    if lay is not None:
        rows.append(("layout", _layout(lay), f"software {r.software}"))
        passes = f"{lay.n_micro_batches} micro-batches of {lay.micro_batch_size}, {lay.precision}"
        rows.append(("batch", f"{lay.global_batch_size:,} x {lay.seq_len:,} tokens", passes))
    if r.step_s is not None and r.step_low_s is not None and r.step_high_s is not None:
        bounds = f"80 % interval {seconds(r.step_low_s)} to {seconds(r.step_high_s)}"
        rows.append(("step, expected", seconds(r.step_s), bounds))
    if r.peak_bytes is not None and r.capacity_bytes is not None:
        low, high = (r.peak_bytes * r.memory_interval_factor_80**sign for sign in (-1, 1))
        held = f"{_verdict(r)}: {gb(r.capacity_bytes)} usable; 80 % interval {low / 1e9:,.1f} to "
        rows.append(("memory per GPU", gb(r.peak_bytes), f"{held}{high / 1e9:,.1f} GB"))
    return rows + _best_row(r)


def _layout(lay: Layout) -> str:
    """Degrees, chunks, sharding and recomputation of the launch."""
    parts = [degrees(lay), f"VPP {lay.vpp}" if lay.vpp > 1 else "", _sharding(lay)]
    kept = recompute(lay) if lay.recompute != "none" else ""
    return ", ".join(part for part in (*parts, kept) if part)


def _best_row(r: LaunchReport) -> list[tuple[str, str, str]]:
    """Best layout of the same job on the same GPUs."""
    if r.best_layout is None or r.best_step_s is None:
        return []
    factor = r.slower_factor or 1.0
    slower = f"; this launch takes {factor:.2f}x as long" if r.slower_factor else ""
    if r.slower_factor and abs(factor - 1) < 0.005:
        slower = "; this launch is as fast"
    elif round(factor, 2) < 1:
        slower = "; this launch is faster, with less memory to spare"
    label = "best on these GPUs" if r.fits else "fastest that fits"
    if r.fits and (r.slower_factor or 1) < 0.995:  # in less room than a search leaves
        label, slower = "best of a search", "; this launch is faster"
    held = f", {gb(r.best_peak_bytes)}" if r.best_peak_bytes is not None else ""
    best = f"{degrees(r.best_layout)}, {_sharding(r.best_layout)}{held}"
    return [(label, seconds(r.best_step_s), best + (slower if r.fits else ""))]


def _sharding(lay: Layout) -> str:
    groups = f" in groups of {lay.shard_group_size}" if lay.shard_group_size else ""
    return f"ZeRO-{lay.zero_stage}{groups}"


def _better(r: LaunchReport) -> list[Block]:
    """Say what the best layout has otherwise."""
    worth = not r.can_launch or r.fits is False or (r.slower_factor or 1) > 1.03
    if not r.changes or not worth:
        return []
    heads = {"field": "change", "have": "have", "best": "best"}
    columns = tuple(Column(key, head, right=False) for key, head in heads.items())
    blocks: list[Block] = []
    if r.why:
        blocks.append(Text(f"Why it is slower: {r.why}."))
    blocks.append(
        Table(columns, [(c.field, c.have, c.best) for c in r.changes], title="What would change it")
    )
    if r.diff:
        blocks.append(Drawn(list(r.diff), title="As a change of the file"))
    if r.left:
        left = ", ".join(f"{c.field} {c.have} (best {c.best})" for c in r.left)
        blocks.append(Text(f"With it the file still says {left}: that is set elsewhere."))
    return blocks


WRITTEN = ("missing", "broken", "not_understood", "unresolved", "notes", "diff", "said_by")
"""Parts of a report in which words of files may stand."""


def hidden_of(given: Collection[str], files: Mapping[str, str]) -> Hidden:
    """Collect what is not repeated of some files; names and formats of the program's own are."""
    names = {name for kind in ("model", "gpu", "cluster", "software") for name in known_names(kind)}
    own = "lora qlora dora config.json".split()
    return Hidden(files, given, names.union(KINDS, RECOMPUTE, PRECISIONS, own))


def covered(found: Checked, hidden: Hidden) -> Checked:
    """Cover in an answer what it does not repeat."""
    report = found.report
    shown = {name: hidden.within(getattr(report, name)) for name in WRITTEN}
    said = {f.name: hidden.within(getattr(report.said, f.name)) for f in fields(report.said)}
    if report.n_params is None:
        shown["model"] = hidden.masked(report.model)
    report = replace(report, **shown, said=replace(report.said, **said))
    return replace(found, report=report, warnings=hidden.within(tuple(found.warnings)))

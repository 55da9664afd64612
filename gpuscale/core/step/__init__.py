"""Time of a training step, operator by operator.

Map, innermost first; each is a pure function of floats and small records:

- `operators`: `matmul_s`, `linear_s` (fprop, dgrad, wgrad, casts), `stream_s`
- `attention.mixer_s`, `moe.ffn_s`: one mixer, one feed-forward part
- `parallel_comm`: `gather_s`, `all_to_all_s` on two fabric levels; `overlap.exposed_s`
- `layer.layer_time(mixer, ffn, hidden_size, hw, sw, shape)`: one layer and micro-batch.
  Depends on the layout only through `Shape` (tp, cp, ep, etp, micro_batch_size, seq_len,
  precision, recompute, sequence_parallel, cp_kind, overlap_tp): memoise by it.
  `layer.head_time` likewise.
- `core.stages`: layers and weights to stages (pp); `step.model_stages`: their times
- `step.step_terms(stages, ...)`: pipeline, transfers, `data_parallel_s`,
  `optimizer_s`, stragglers: a few float operations per layout
- `step.step_time(model, hw, software, layout) -> StepResult`: all of it, both columns
- `interval.interval(...)`: the stated 80 % interval of an expected time

`hw` and `software` carry every calibrated figure; `ideal.ideal_hardware(hw)` and
`ideal.ideal_software(sw)` give the roofline column from the same formulas.
"""

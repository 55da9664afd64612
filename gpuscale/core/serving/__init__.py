"""Expected (calibrated) times of serving one replica of a model.

- `records`: the replica's layout and formats, its hardware, the software and kernel parameters.
- `products`: matrix products of serving, plain, grouped by expert, quantised.
- `mixers`: one mixer on some tokens: projections, prefill core, decode core (cache traffic).
- `ffns`: dense MLPs, experts met by a small batch, their exchange.
- `forward`: one pass over prompt tokens and decoding sequences; `PassTime` by part.
- `load`: decode passes with drafts, prompts in chunks, the sequences that have room.
- `traffic`, `simulator`, `percentiles`: an engine under load, from pass to pass; `tables` has the
  pass times it needs, `queueing` the formula that brackets it, `service` and `disaggregated` make
  a replica or two pools of it.

The roofline of the same replica is `core.serving.replica.serving_times`; the two are never mixed.
"""

"""Expected (calibrated) times of serving one replica of a model.

- `records`: the replica's layout and formats, its hardware, the software and kernel parameters.
- `kernels`: products of serving, the cores of a mixer, dense MLPs and experts; `exchange` between
  GPUs.
- `forward`: one pass over prompt tokens and decoding sequences, by part; with drafts, of prompts.
- `traffic`, `simulator`, `percentiles`: an engine under load, from pass to pass; `tables` has the
  pass times it needs, `capacity` the highest rate and the formula that brackets it, `service` and
  `disaggregated` make a replica or two pools of it.

The roofline of the same replica is `core.serving.replica.serving_times`; the two are never mixed.
"""

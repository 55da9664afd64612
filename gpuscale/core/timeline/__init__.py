"""The expected step laid out in time: events per pipeline stage, and memory over time.

`orders` says what each device works on in which order, `replay` when; `build.timeline` fills in
the times of the step model, so that the whole is as long as the predicted step. `records` are the
results, which drawing needs without the rest.
"""

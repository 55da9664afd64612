"""Settings of every test: a number that is not finite is a bug; no person's own environment."""

import os

os.environ["GPUSCALE_STRICT"] = "1"
for _name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "GPUSCALE_FORMAT", "PYTHONIOENCODING"):
    os.environ.pop(_name, None)

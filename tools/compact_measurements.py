"""Make the package's own compact copy of the matmul and collective measurements.

    python tools/compact_measurements.py FOLDER

FOLDER holds gemm.csv and collectives.csv with the full citation in the column `source`; the copy in
gpuscale/data/validation/ keeps a short key there and lists the citations in kernel_sources.csv.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "gpuscale" / "data" / "validation"

LICENCES = (  # start of the citation, short key, licence as far as known
    ("ai-dynamo/aiconfigurator", "aic", "Apache-2.0"),
    ("MooreThreads/SimuMax", "simumax", "Apache-2.0"),
    ("stas00/ml-engineering", "ml-eng", "CC-BY-SA-4.0"),
    ("Azure/AI-benchmarking-guide", "azure", "MIT"),
    ("aws-samples/awsome-distributed-training", "aws", "MIT-0"),
    ("dstackai/dstack", "dstack", "MPL-2.0"),
    ("coreweave/nccl-tests", "coreweave", "not verified"),
    ("oracle-quickstart/oci-hpc-oke", "oracle", "not verified"),
    ("deepseek-ai/DeepEP", "deepep", "MIT"),
    ("public GitHub document (repository not recorded)", "public", "not recorded"),
)

KEEP = {
    "gemm.csv": ("m", "n", "k", "dtype", "gpu", "time_us", "kernel", "includes", "source"),
    "collectives.csv": (
        "op",
        "gpu",
        "n_gpus",
        "gpus_per_node",
        "fabric",
        "size_bytes",
        "time_us",
        "algbw_GBps",
        "busbw_GBps",
        "algorithm",
        "note",
        "source",
    ),
}


def main(folder: Path) -> None:
    """Write the three files."""
    keys: dict[str, tuple[str, str]] = {}
    OUT.mkdir(parents=True, exist_ok=True)
    for name, columns in KEEP.items():
        with (folder / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        with (OUT / name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            for row in rows:
                citation = row["source"]
                if citation not in keys:
                    prefix, licence = next(
                        (k, lic) for start, k, lic in LICENCES if citation.startswith(start)
                    )
                    n = sum(k.startswith(prefix + "-") for k, _ in keys.values())
                    keys[citation] = (f"{prefix}-{n + 1}", licence)
                row["source"] = keys[citation][0]
                writer.writerow([row[c] for c in columns])
    with (OUT / "kernel_sources.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("source", "licence", "citation"))
        for citation, (key, licence) in keys.items():
            writer.writerow((key, licence, citation))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)

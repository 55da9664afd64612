"""Scale-up domains of NVLink switches.

References
----------
.. [1] NVIDIA, DGX H100/H200 and DGX GB Rack Scale Systems user guides: NVLink switches and links.
"""

from __future__ import annotations

import math

from gpuscale.core.fabric.records import Bisection, Design, Links, Tier


def nvlink_domain(
    n_gpus: int,
    links_per_gpu: int,
    link_bytes_per_s: float,
    ports_per_chip: int,
    n_chips: int | None = None,
) -> Design:
    """Scale-up domain of NVLink switches: ``G l / ports`` chips, every GPU joined to all of them.

    `n_gpus`: GPUs of the domain (G) [1]. `links_per_gpu`: NVLink links of a GPU (l) [1].
    `link_bytes_per_s`: of one link, one direction; vendors print both added [byte/s].
    `ports_per_chip`: ports of a switch chip that GPUs use [1]. `n_chips`: chips as built where more
    than are needed.
    """
    n_links = n_gpus * links_per_gpu
    chips = n_chips or math.ceil(n_links / ports_per_chip)
    rate = links_per_gpu * link_bytes_per_s
    return Design(
        topology="nvlink",
        n_gpus=n_gpus,
        n_nodes=1,
        n_host_links=n_links,
        n_tiers=1,
        n_networks=1,
        tiers=(Tier("NVLink switch", chips, math.ceil(n_links / chips), 0, 1.0),),
        links=(Links("GPU", "NVLink switch", n_links, link_bytes_per_s, n_links, False),),
        bisection=(Bisection("domain", n_gpus, rate, n_gpus / 2 * rate),),
    )

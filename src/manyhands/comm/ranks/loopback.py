"""Loopback: what keeps the ranks of one host from listening where other hosts could reach them."""

import os
import sys
from collections.abc import Mapping

from manyhands.comm.ranks.rank_info import STORES

LOOPBACK = "127.0.0.1"
INTERFACE = "lo" if sys.platform.startswith("linux") else "lo0"
# Where each library that connects ranks may listen; what the user has said stays.
ONLY_LOOPBACK = {
    "GLOO_SOCKET_IFNAME": INTERFACE,
    "TP_SOCKET_IFNAME": INTERFACE,
    "NCCL_SOCKET_IFNAME": INTERFACE,
    "UCX_NET_DEVICES": INTERFACE,  # MPICH's
    "FI_TCP_IFACE": INTERFACE,
    "FI_PROVIDER": "tcp",
    "OMPI_MCA_btl_tcp_if_include": INTERFACE,  # Open MPI's
    "PRTE_MCA_prte_if_include": INTERFACE,
    "PMIX_MCA_ptl_tcp_if_include": INTERFACE,
}


def environment(folder: str) -> Mapping[str, str]:
    """What ranks are told whose stores lie in a folder."""
    return {STORES: folder, **{name: value for name, value in ONLY_LOOPBACK.items() if name not in os.environ}}

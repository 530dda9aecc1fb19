"""Many hosts: how ranks that another launcher has started on several hosts meet, and what they check first.

Torch waits ten minutes for a rank that never comes, and takes the interface that the host's own name leads to, which
often is the loopback. Here every rank says within half a minute which ranks it misses.
"""

import os
import platform
import socket
import time
from datetime import timedelta
from ipaddress import ip_address

import psutil

from manyhands.comm.ranks.rank_info import Place
from manyhands.comm.ranks.status_files import names
from manyhands.compat import PrefixStore, Store, TCPStore
from manyhands.errors import InputError, RankError

JOIN = 30.0  # seconds for all ranks to come
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun keeps the store, and rank 0 does not


def store(place: Place, timeout: timedelta) -> Store:
    """The store by which all meet, once all have come."""
    address, port = os.environ["MASTER_ADDR"], os.environ.get("MASTER_PORT", "")
    if not port.isdigit():
        raise InputError(f"MASTER_PORT={port!r}: ranks on several hosts need the port of rank 0")
    if place.local_world != place.world:
        own = interface(address)
        for each in INTERFACES:
            os.environ.setdefault(each, own)
    hosts = place.rank == 0 and os.environ.get(AGENT) != "True"
    try:
        found = TCPStore(
            address, int(port), place.world, hosts, timedelta(seconds=JOIN), wait_for_workers=False, multi_tenant=True
        )
    except RuntimeError as error:
        raise RankError(
            f"rank {place.rank} on {platform.node()} did not reach {address}:{port} within {JOIN:.0f} s: is the host "
            f"of rank 0 up, and the port open? ({str(error).splitlines()[0]})"
        ) from error
    mine = PrefixStore(f"manyhands-{place.restarts}", found)
    _meet(mine, place)
    mine.set_timeout(timeout)
    return mine


def interface(address: str) -> str:
    """The network interface over which others are reached; refuses one that nobody else can reach."""
    here = platform.node()
    try:
        target = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise InputError(f"MASTER_ADDR={address} is not known on {here} ({error}): give an address") from None
    family, _, _, _, (ip, *_) = target
    if ip_address(str(ip).partition("%")[0]).is_loopback:
        raise InputError(
            f"MASTER_ADDR={address} leads to the loopback of {platform.node()}, where no other host comes: give the "
            "address by which other hosts reach that of rank 0"
        )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(ip), 9))  # sends nothing: only the way is looked up
        except OSError as error:
            raise InputError(f"no way leads from {here} to MASTER_ADDR={address} ({error.strerror})") from None
        own = str(probe.getsockname()[0])  # of rank 0's own host: the address itself, though the way is the loopback
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return name
    raise InputError(f"no interface of {platform.node()} has the address {own}, from which {address} is reached")


def _meet(store: Store, place: Place) -> None:
    """Wait until every rank has said that it is here."""
    store.set(f"here/{place.rank}", platform.node())
    deadline = time.monotonic() + JOIN
    missing = list(range(place.world))
    while missing and time.monotonic() < deadline:
        missing = [rank for rank in missing if not store.check([f"here/{rank}"])]
        if missing:
            time.sleep(0.05)
    if missing:
        raise RankError(
            f"{names(missing)} did not come within {JOIN:.0f} s: rank {place.rank} on {platform.node()} waited in vain"
        )

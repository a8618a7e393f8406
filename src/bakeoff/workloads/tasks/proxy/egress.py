"""A way out to a list of hosts: an HTTP proxy (CONNECT and plain requests) on a unix socket.

A sandbox without a network gets the socket as a port on its loopback address, and `http_proxy` and `https_proxy`, which
curl, pip, uv, npm, git, apt and most HTTP libraries obey. What ignores them reaches nothing.

    with Egress(folder / "egress.sock") as egress:
        egress.enter("agent", ["pypi.org", "*.pythonhosted.org"])

A name is looked up here, once, and the connection goes to the address that was checked: a name that leads to this
machine or into a private network (RFC 1918, link-local, and so on) is refused, whatever the list says. Addresses
instead of names are refused, too. Inside the tunnel of CONNECT nothing is read, so a listed host that also serves other
people's content is a way to that content.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bakeoff.workloads.tasks.proxy.thread import ThreadedServer

HEAD_BYTES, HEAD_S, IDLE_S, CONNECT_S = 64 << 10, 15.0, 300.0, 30.0
CONNECTIONS = 128
MOST_REFUSED = 1000
"""Different refusals that are recorded."""
PORTS = (80, 443)
"""Where a host may be reached that is listed without a port."""
_HOST = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(:\d{1,5})?")
_REQUEST = re.compile(r"([A-Z]+) (\S+) HTTP/1\.[01]")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
"""RFC 9112, 5: a bare CR or LF, a space before the colon or a folded line is a header to some servers and not to
others."""
EMBEDDING = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""IPv6 networks whose last 32 bits are an IPv4 address: compatible, mapped, translated, NAT64 (RFC 4291, 2765, 6052)."""
LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""RFC 8215: leads to IPv4 addresses that a network chooses, private ones included."""
Resolve = Callable[[str, int], Awaitable[list[str]]]


def checked_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """A list of hosts in lower case. Raises ValueError for an entry that is not one: an address, a URL, a path."""
    entries = tuple(host.lower().rstrip(".") for host in hosts)
    for entry in entries:
        if entry != "*" and (not _HOST.fullmatch(entry) or _is_address(entry.partition(":")[0])):
            raise ValueError(f"{entry!r} is not the name of a host; write `pypi.org`, `*.example.org` or `host:8443`")
    return entries


def allows(hosts: Iterable[str], host: str, port: int) -> bool:
    """Whether a list has this host: exactly, or below `*.`; at ports 80 and 443, or at the one that is named."""
    for entry in hosts:
        name, _, named_port = entry.partition(":")
        if port not in ((int(named_port),) if named_port else PORTS):
            continue
        if name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:]) and host != name[2:]):
            return True
    return False


def variables(port: int) -> dict[str, str]:
    """What makes programs in a sandbox use the proxy at this port."""
    url, here = f"http://127.0.0.1:{port}", "127.0.0.1,localhost,::1"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {**dict.fromkeys(names, url), "no_proxy": here, "NO_PROXY": here}


def is_public(address: str) -> bool:
    """Return whether an address is neither this machine nor part of a private network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast
    if any(ip in network for network in EMBEDDING):
        return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    if ip.sixtofour is not None and not is_public(str(ip.sixtofour)):
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_site_local and ip not in LOCAL_NAT64


def _is_address(host: str) -> bool:
    """Whether this is an IP address, also in the short and hexadecimal spellings that inet_aton(3) accepts."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        try:
            socket.inet_aton(host)
        except OSError:
            return False
    return True


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Refused(Exception):
    """A request that is not let through: status and reason."""

    def __init__(self, status: int, reason: str, host: str = "", port: int = 0) -> None:
        super().__init__(reason)
        self.status, self.reason, self.host, self.port = status, reason, host, port


class Egress(ThreadedServer):
    """The proxy: a context manager that serves in a thread while it is open.

    `refused` has every host that was asked for and not let through, once for each phase; `record` gets a line of JSON
    for each of them.
    """

    title = "network proxy"

    def __init__(self, path: Path, record: Path | None = None, resolve: Resolve = resolved) -> None:
        super().__init__()
        self.path, self._record, self._resolve = path, record, resolve
        self.refused: list[dict[str, str | int]] = []
        self._now: tuple[str, tuple[str, ...]] = ("", ())
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self, phase: str, hosts: Iterable[str]) -> None:
        """From now on let requests to these hosts through. `phase` is what refusals are recorded with."""
        self._now = (phase, checked_hosts(hosts))

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._connected, self.path, limit=HEAD_BYTES)
        self.path.chmod(0o666)  # a sandbox may run as any user
        yield
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > CONNECTIONS:
                raise Refused(503, "too many connections")
            await self._handle(reader, writer)
        except Refused as refusal:
            if refusal.host:
                self._note(refusal)
            text = f"{refusal.reason}\n".encode()
            head = f"HTTP/1.1 {refusal.status} Refused\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + text)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a client that sends nonsense or hangs up
        finally:
            self._tasks.discard(task)
            writer.close()

    def _note(self, refusal: Refused) -> None:
        entry: dict[str, str | int] = {
            "phase": self._now[0],
            "host": refusal.host[:255],
            "port": refusal.port,
            "why": refusal.reason,
        }
        if entry in self.refused or len(self.refused) >= MOST_REFUSED:
            return
        self.refused.append(entry)
        if self._record is not None:
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: read the head, connect to the host that it names, and pass bytes both ways."""
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.decode("latin-1").partition("\r\n")
        if (line := _REQUEST.fullmatch(first)) is None:
            raise Refused(400, "this is not a valid request line")
        method, target = line.groups()
        if method == "CONNECT":
            host, _, port_text = target.rpartition(":")
            path, port = "", int(port_text)
        else:
            url = urlsplit(target)
            if url.scheme != "http" or not url.hostname:
                raise Refused(400, "this is a proxy: send http://host/path or CONNECT host:port")
            host, port = url.hostname, url.port or 80
            path = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
        lines = rest.removesuffix("\r\n\r\n").split("\r\n") if rest.strip("\r\n") else []
        if not all(map(_HEADER.fullmatch, lines)):
            raise Refused(400, "a header is not valid", host, port)
        there, back = await self._open(host.lower().rstrip("."), port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                # The host that was checked, whatever the headers say; and one request for each connection.
                kept = [line for line in lines if not re.match(r"(host|connection|proxy-[\w-]+)\s*:", line, re.I)]
                name = host if port == 80 else f"{host}:{port}"
                begin = [f"{method} {path} HTTP/1.1", f"host: {name}", "connection: close", *kept]
                back.write(("\r\n".join(begin) + "\r\n\r\n").encode("latin-1"))
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        finally:
            back.close()

    async def _open(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host on the list, at an address that was checked. Raises Refused."""
        if _is_address(host):
            raise Refused(403, "an address is not the name of a host", host, port)
        if not allows(self._now[1], host, port):
            raise Refused(403, "this host is not on the list", host, port)
        try:
            async with asyncio.timeout(CONNECT_S):
                addresses = await self._resolve(host, port)
                if not addresses or not all(is_public(address) for address in addresses):
                    raise Refused(403, "this host is in a private network", host, port)
                return await asyncio.open_connection(addresses[0], port)
        except (OSError, TimeoutError) as error:
            raise Refused(502, f"this host cannot be reached: {error}") from error


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends. The end is passed on, too."""
    while True:
        async with asyncio.timeout(IDLE_S):
            data = await reader.read(65536)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()

"""beacon: says whether hosts answer."""

from __future__ import annotations

import argparse
import os
import sys


def variable(name: str, default: str) -> str:
    return os.environ.get(name, default)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="beacon", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    probe = commands.add_parser("probe", help="Ask one host whether it answers.")
    probe.add_argument("host", help="Name or address.")
    probe.add_argument("-n", "--count", type=int, default=int(variable("BEACON_COUNT", "3")), help="How often to ask.")
    probe.add_argument("-t", "--timeout", type=float, default=2.5, help="Seconds to wait for an answer.")
    probe.add_argument("--quiet", action="store_true", help="Only the exit code says what came of it.")

    watch = commands.add_parser("watch", help="Ask many hosts again and again.")
    watch.add_argument("hosts", nargs="+", help="Names or addresses.")
    watch.add_argument("-i", "--interval", type=float, default=float(variable("BEACON_INTERVAL", "30")), help="Seconds between two rounds.")  # fmt: skip
    watch.add_argument("--alert", default=variable("BEACON_ALERT", "stderr"), help="Where to report a host that stopped answering.")  # fmt: skip
    watch.add_argument("--jitter", type=float, default=0.1, help="Part of the interval by which rounds vary.")

    export = commands.add_parser("export", help="Write what was seen as a table.")
    export.add_argument("-f", "--format", choices=["csv", "json"], default="csv", help="The table's format.")
    export.add_argument("-o", "--output", help="Where to write it; standard output when left out.")
    export.add_argument("--since", help="Only what was seen from this day on.")
    return parser


if __name__ == "__main__":
    print(build_parser().parse_args(sys.argv[1:]))

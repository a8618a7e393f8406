"""Who and what there is, by name. Everything is invented."""

from __future__ import annotations

from bakeoff.workloads.market.world.layout import CHATS, SOURCES

SOURCE_NAMES = (
    "Harbor Ledger",
    "The Copper Wire",
    "Tape & Tide",
    "Nightdesk",
    "Orchard Street Notes",
    "Basin Observer",
)
CHAT_NAMES = ("The Back Table", "Quiet Alpha", "Lantern Room")
WIRE_NAME = "Open Wire"
TRADER_NAMES = (
    "Ada Fenwick", "Bruno Castell", "Cleo Marsh", "Dario Lindt", "Edda Voss", "Farid Okoye", "Greta Holm", "Hugo Pratt-Lane",
    "Iris Tanaka-Bell", "Jonas Reuter-Vale", "Kira Solberg", "Levi Aramont", "Mina Duarte-Kess", "Nils Overbeck",
    "Odile Faure-Lind", "Piet Zandbergen",
)  # fmt: skip

assert len(SOURCE_NAMES) == SOURCES and len(CHAT_NAMES) == CHATS


def source_id(source: int) -> str:
    return f"source-{source}"


def chat_id(chat: int) -> str:
    return f"chat-{chat}"


def market_id(number: int) -> str:
    return f"market-{number}"


def agent_id(agent: int) -> str:
    return f"agent-{agent}"


def seat_id(seat: int) -> str:
    return f"seat-{seat}"


def trader_name(agent: int) -> str:
    again = agent // len(TRADER_NAMES)
    name = TRADER_NAMES[agent % len(TRADER_NAMES)]
    return f"{name} {again + 1}" if again else name

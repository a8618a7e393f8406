"""A seat's view of its world as text."""

from __future__ import annotations

from bakeoff.workloads.market.world.world import World


def rendered(world: World, seat: int) -> str:
    account, held = world.account(seat), world.positions(seat)
    shares = {view.market_id: f"{view.shares:.1f} {view.side}" for view in held.markets}
    sizes = {view.ticker: f"{view.side} {view.size:.0f}" for view in held.perps}
    lines = [f"tick {world.tick} of {world.ticks}   equity {account.equity:.2f}   cash {account.cash:.2f}"]
    lines += [
        f"{view.id:>10}  {view.yes_price:.3f}  {shares.get(view.id, '-'):>12}  {view.question}"
        for view in world.markets()
    ]
    lines += [
        f"{view.ticker:>10}  {view.price:.6g}  {sizes.get(view.ticker, '-'):>12}  announcement at tick {view.announcement_tick}"
        for view in world.perpetuals()
    ]
    return "\n".join(lines)

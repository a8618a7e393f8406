"""A trader of your own: it follows fresh claims in the feed. docs/market-agents.md lists what a seat can do."""


class Trader:
    name = "believer"

    def reset(self, brief):
        self.read = set()  # posts that it has acted on

    def act(self, seat):
        for post in seat.observe()["posts"]:
            if post["claim"] and post["id"] not in self.read and seat.actions_left:
                side = "LONG" if post["claim"] > 0 else "SHORT"
                seat.open(post["ticker"], side, size=20, leverage=2)
            self.read.add(post["id"])

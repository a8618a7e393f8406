"""A world of prediction markets, perpetual futures and a social feed, drawn from a key and played by agents."""

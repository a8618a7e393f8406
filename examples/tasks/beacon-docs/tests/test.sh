#!/bin/bash
# Leaves the part of the checks that passed as the reward.
page=/app/docs/cli.md
if [ -n "$BAKEOFF_WORK" ]; then  # the agent's files are in a sandbox of their own
    "$BAKEOFF_WORK" read "$page" > /tests/page.md
    page=/tests/page.md
fi
python3 -I /tests/check.py "$page" > /logs/verifier/reward.json
cat /logs/verifier/reward.json

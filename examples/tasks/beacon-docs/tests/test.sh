#!/bin/bash
# Leaves the part of the checks that passed as the reward.
python3 -I /tests/check.py /app/docs/cli.md > /logs/verifier/reward.json
cat /logs/verifier/reward.json

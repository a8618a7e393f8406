#!/bin/bash
set -e
cp /solution/usage.py /app/usage.py
python3 /app/usage.py /app/data > /app/usage.json

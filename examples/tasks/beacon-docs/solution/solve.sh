#!/bin/bash
set -e
cp /solution/cli.md /app/docs/cli.md

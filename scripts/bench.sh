#!/usr/bin/env bash
# Runs the main table, or the benchmarks that are named, one after another: scripts/bench.sh wheel sol -- --quick
set -euo pipefail
cd "$(dirname "$0")/.."

names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  names+=("$1")
  shift
done
[ $# = 0 ] || shift

if [ "${#names[@]}" = 0 ]; then
  exec .venv/bin/python -m benchmarks "$@"
fi
for name in "${names[@]}"; do
  printf '\n== %s\n' "$name"
  .venv/bin/python -m "benchmarks.$name" "$@"
done

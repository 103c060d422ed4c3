#!/usr/bin/env bash
# Runs the benchmarks one after another, all or those named: scripts/bench.sh wheel sol -- --quick
set -euo pipefail
cd "$(dirname "$0")/.."

names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  names+=("$1")
  shift
done
[ $# = 0 ] || shift

if [ "${#names[@]}" = 0 ]; then
  for file in $(grep -l '__name__ == "__main__"' benchmarks/*.py | sort); do
    names+=("$(basename "$file" .py)")
  done
fi
for name in "${names[@]}"; do
  printf '\n== %s\n' "$name"
  .venv/bin/python -m "benchmarks.$name" "$@"
done

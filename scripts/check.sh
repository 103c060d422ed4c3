#!/usr/bin/env bash
# Runs every check, cheapest first, and stops at the first that fails. Ends with the number of tests of all stages.
# Arguments go to every pytest stage: scripts/check.sh -k window
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BIN=.venv/bin
# Most of Spark's Java processes here live for seconds: what its second compiler spends on them never comes back.
export JDK_JAVA_OPTIONS="${JDK_JAVA_OPTIONS--XX:TieredStopAtLevel=1}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
times=()
passed=0 skipped=0
pytest_arguments=("$@")

stage() { # name, then the command
  local name=$1 started=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  if [ "$status" = 5 ] && [ "${#pytest_arguments[@]}" != 0 ]; then
    status=0 # pytest says that no test was selected, which a selection may well mean for one folder
  fi
  if [ "$status" != 0 ]; then
    printf '\nFAILED: the stage "%s", after %d s\n' "$name" $((SECONDS - started))
    exit 1
  fi
  times+=("$(printf '%-20s %5d s' "$name" $((SECONDS - started)))")
}

count() { # how many tests had this outcome, by the last summary line of the stage
  grep -E ' in [0-9.]+s' "$log" | tail -n 1 | grep -oE "[0-9]+ $1" | cut -d' ' -f1 || true
}

tests() { # a folder below tests/
  stage "tests/$1" "$BIN/python" -m pytest "tests/$1" "${pytest_arguments[@]}"
  local found
  found=$(count passed)
  passed=$((passed + ${found:-0}))
  found=$(count skipped)
  skipped=$((skipped + ${found:-0}))
}

stage "ruff check" "$BIN/ruff" check .
stage "ruff format" "$BIN/ruff" format --check .
stage "mypy" "$BIN/mypy"
stage "layers" "$BIN/lint-imports"
tests unit
tests simulation
tests integration
tests browser

printf '\n== time per stage\n'
printf '%s\n' "${times[@]}"
printf '\n%d passed, 0 failed, %d skipped\n' "$passed" "$skipped"

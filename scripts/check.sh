#!/usr/bin/env bash
# Runs the checks, cheapest first, and stops at the first stage that fails. Ends with the slowest tests, the time of
# each stage and the number of tests. Lint, types and layers run side by side; tests run in several processes.
#
#   scripts/check.sh                 every check (make test)
#   scripts/check.sh --quick         without integration and browser tests (make check)
#   scripts/check.sh --coverage      the quick tests only, with the line and branch coverage of src (make coverage)
#   scripts/check.sh -k window       further arguments go to every pytest stage; -n 0 runs tests in one process
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BIN=.venv/bin SLOWEST=40
# Most of Spark's Java processes here live for seconds: the time its second compiler takes is never won back.
# Without it Java keeps 48 MiB for compiled code, which Spark's generated classes fill within minutes; then nothing is
# compiled any more. The first compiler takes a sixth of such a process; at twice its thresholds, a tenth.
export JDK_JAVA_OPTIONS="${JDK_JAVA_OPTIONS--XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:CompileThresholdScaling=2}"
# Tests start hundreds of Python processes, each of which would compile the package anew.
unset PYTHONDONTWRITEBYTECODE
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
times=()

kind=all
case "${1:-}" in
  --quick | --coverage) kind=${1#--} && shift ;;
esac
pytest_arguments=("$@")

finish_stage() { # name, when it started, its exit status
  local seconds=$((SECONDS - $2))
  if [ "$3" != 0 ]; then
    printf '\nFAILED: the stage "%s", after %d s\n' "$1" "$seconds"
    exit 1
  fi
  times+=("$(printf '%-30s %5d s' "$1" "$seconds")")
}

side_by_side() { # the name of the stage, then commands, each one word list; prints the end of each one's output, or all
  # of it if the command fails
  local name=$1 started=$SECONDS status=0 number=0 command pids=()
  shift
  printf '\n== %s\n' "$name"
  for command in "$@"; do
    # shellcheck disable=SC2086 # a command is a list of words
    "$BIN"/$command >"$results/command-$number" 2>&1 &
    pids+=($!)
    number=$((number + 1))
  done
  number=0
  for command in "$@"; do
    printf '%s\n' "-- $command"
    if wait "${pids[$number]}"; then
      tail -n 1 "$results/command-$number"
    else
      cat "$results/command-$number"
      status=1
    fi
    number=$((number + 1))
  done
  finish_stage "$name" "$started" "$status"
}

tests() { # the name of the stage, how many processes, then folders below tests/ and options of pytest
  local name=$1 processes=$2 started=$SECONDS status=0
  shift 2
  printf '\n== %s\n' "$name"
  "$BIN/python" -m pytest --numprocesses "$processes" --no-loadscope-reorder --junitxml "$results/$name.xml" "$@" \
    "${pytest_arguments[@]}" || status=$?
  if [ "$status" = 5 ] && [ "${#pytest_arguments[@]}" != 0 ]; then
    status=0 # pytest found no test to run, which is right when a selection excludes a whole folder
  fi
  finish_stage "$name" "$started" "$status"
}

case $kind in
  coverage)
    tests "unit and simulation" 2 tests/simulation tests/unit \
      --cov --cov-report "html:build/coverage" --cov-report "term:skip-covered"
    ;;
  *)
    # Pytest compiles each test file on first use: several processes that start together would each compile all.
    side_by_side "lint, types, layers" "ruff check ." "ruff format --check ." "mypy" "lint-imports" \
      "python -m pytest --collect-only -qq tests/unit tests/simulation"
    tests "unit and simulation" 3 tests/simulation tests/unit
    if [ "$kind" = all ]; then
      # Brokers, browsers and clusters are waited for: a third process uses the cores meanwhile.
      tests "integration and browser" 3 tests/integration tests/browser
    fi
    ;;
esac

"$BIN/python" scripts/slowest_tests.py "$SLOWEST" "$results"/*.xml
printf '\n== time per stage\n'
printf '%s\n' "${times[@]}" "$(printf '%-30s %5d s' "all" "$SECONDS")"
"$BIN/python" scripts/slowest_tests.py 0 "$results"/*.xml

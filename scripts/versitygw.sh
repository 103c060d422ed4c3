#!/usr/bin/env bash
# Runs the tests of object stores once more with versitygw in place of S3Proxy: another implementation of conditional
# writes. Builds it with Go on the first use; without Go it says so, and does nothing.
#
#   scripts/versitygw.sh             called by make nightly; further arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VERSION=v1.8.0
readonly PLACE="${XDG_CACHE_HOME:-$HOME/.cache}/drivetrain/versitygw-$VERSION"
readonly TESTS=(test_object_store test_remote_state test_lost_machine test_published_objects test_requests test_table_stores)

if [ ! -x "$PLACE/versitygw" ]; then
  if ! command -v go > /dev/null; then
    echo "versitygw: left out, because Go is not installed"
    exit 0
  fi
  echo "versitygw: building $VERSION (once)"
  GOBIN="$PLACE" go install "github.com/versity/versitygw/cmd/versitygw@$VERSION"
fi
export TESTS_VERSITYGW="$PLACE/versitygw"
unset PYTHONDONTWRITEBYTECODE
files=()
for name in "${TESTS[@]}"; do files+=("tests/integration/objects/$name.py"); done
.venv/bin/python -m pytest --numprocesses 2 "${files[@]}" "$@"

#!/usr/bin/env bash
# Resolves pyproject.toml with all its extras in an empty environment and writes requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-.venv/bin/python}" -m venv "$fresh/venv"
pip=("$fresh/venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install --editable ".[fast,console,kafka,mqtt,postgresql,mysql,redis,delta,iceberg,s3,hdfs,examples,dev]"
{
  printf '# Every package that the checks and examples run with, pinned. Python 3.11 and later, Linux.\n'
  printf '# Renew with `make lock`, which resolves pyproject.toml anew in an empty environment.\n'
  "${pip[@]}" freeze --exclude-editable | grep -v ' @ '
} >"$fresh/requirements.lock"
mv "$fresh/requirements.lock" requirements.lock
echo "requirements.lock: $(grep -vc '^#' requirements.lock) packages"
"${PYTHON:-.venv/bin/python}" scripts/spark_names.py # PySpark's functions, as the pinned version has them
"${PYTHON:-.venv/bin/python}" scripts/spark_grammar.py # the grammar of SQL expressions, likewise

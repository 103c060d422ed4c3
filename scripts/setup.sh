#!/usr/bin/env bash
# Prepares this checkout on a Debian-like machine that has Python 3.11 or later: a virtual environment in .venv with
# the pinned packages and this one, Java for Spark, and with --browser what the checks need besides: the Chromium that
# the browser tests drive, tsc for the types of the dashboard's modules, promtool, servers of PostgreSQL, MariaDB and Redis, Mosquitto, and the jars of Kafka's
# broker, of Spark's connector to it, and of an object store.
# Whatever is there already is used as it is, so a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv
readonly STAMP=$VENV/.drivetrain-setup
readonly PYTHON_AT_LEAST="3.11" JAVA_AT_LEAST=17
want_browser=no
apt_updated=no
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf 'setup: %s\n' "$*"; }

give_up() { # what is missing, then what to do about it
  printf 'setup: cannot go on: %s\n' "$1" >&2
  shift
  printf '  remedy: %s\n' "$@" >&2
  exit 1
}

can_be_root() {
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  # A password can be asked for only at a terminal.
  sudo -n true 2>/dev/null || [ -t 0 ]
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt_install() { # why, then packages
  local why=$1
  shift
  command -v apt-get >/dev/null || give_up "$why is missing, and this machine has no apt-get to install it with" \
    "install it the way this system does, then run the command again"
  can_be_root || give_up "$why is missing, and installing it needs root" \
    "sudo apt-get install -y $*" "then run the command again"
  if [ "$apt_updated" = no ]; then
    say "asking apt for its package lists"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || say "apt-get update failed; trying with the lists there are"
    apt_updated=yes
  fi
  say "installing $* with apt: $why is missing"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    give_up "apt could not install $*" "see the lines above; install $why yourself, then run the command again"
  }
}

new_enough() { # a Python interpreter that exists and is new enough
  command -v "$1" >/dev/null && "$1" -c "import sys; sys.exit(sys.version_info < (${PYTHON_AT_LEAST/./, }))" 2>/dev/null
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
    if new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

make_venv() {
  local python
  python=$(find_python) || give_up "no Python $PYTHON_AT_LEAST or later was found" \
    "install one (apt-get install python3), or name it: make setup PYTHON=/path/to/python3"
  say "making $VENV with $python ($("$python" -V))"
  rm -rf "$VENV"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian splits these two modules off into a package of their own.
    apt_install "Python's venv module" "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  fi
  "$python" -m venv "$VENV"
}

wanted_stamp() {
  cat requirements.lock pyproject.toml "$VENV/pyvenv.cfg" | sha256sum | cut -d' ' -f1
}

install_packages() {
  if [ -x "$VENV/bin/python" ] && ! new_enough "$VENV/bin/python"; then
    say "$VENV has no working Python $PYTHON_AT_LEAST any more"
    rm -rf "$VENV"
  fi
  [ -x "$VENV/bin/python" ] || make_venv
  if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(wanted_stamp)" ]; then
    return
  fi
  say "installing the packages of requirements.lock into $VENV (PySpark is large: a few minutes the first time)"
  local pip=("$VENV/bin/python" -m pip --disable-pip-version-check --quiet)
  "${pip[@]}" install --use-pep517 -r requirements.lock || give_up "pip could not install the packages" \
    "see the lines above: usually the package index cannot be reached, or the disk is full"
  say "installing this checkout into $VENV, editable"
  "${pip[@]}" install --no-deps --editable . || give_up "pip could not install this checkout" "see the lines above"
  wanted_stamp >"$STAMP"
}

java_major() { # the major version of a java program; nothing when it does not run
  "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

install_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/java} major package
  java=${java:-java}
  if command -v "$java" >/dev/null; then
    major=$(java_major "$java")
    [ "${major:-0}" -ge "$JAVA_AT_LEAST" ] && return
    [ -n "${JAVA_HOME:-}" ] && give_up "JAVA_HOME names Java ${major:-that does not run}; Spark needs $JAVA_AT_LEAST or later" \
      "set JAVA_HOME to such a Java, or unset it"
  elif [ -n "${JAVA_HOME:-}" ]; then
    give_up "JAVA_HOME is $JAVA_HOME, and there is no bin/java in it" "set JAVA_HOME to a Java $JAVA_AT_LEAST, or unset it"
  fi
  package=openjdk-17-jre-headless
  if command -v apt-cache >/dev/null && can_be_root; then
    [ "$apt_updated" = yes ] || as_root apt-get update -qq || say "apt-get update failed; trying with the lists there are"
    apt_updated=yes
    # Newer Debian releases carry a newer Java only.
    apt-cache show "$package" >/dev/null 2>&1 || package=openjdk-21-jre-headless
    # The package's scripts expect a folder that minimal images leave out.
    as_root mkdir -p /usr/share/man/man1
  fi
  apt_install "Java $JAVA_AT_LEAST or later, which Spark runs on," "$package"
  major=$(java_major java)
  [ "${major:-0}" -ge "$JAVA_AT_LEAST" ] || give_up "the java on the PATH is still version ${major:-unknown}" \
    "put a Java $JAVA_AT_LEAST first on the PATH, or name it by JAVA_HOME"
}

install_browser() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  command -v tsc >/dev/null || missing+=(node-typescript)
  [ "${#missing[@]}" = 0 ] || apt_install "what the tests of the dashboard need" "${missing[@]}"
}

install_postgres() { # tests start servers of their own: the one that Debian's package sets up is not used
  compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || command -v initdb >/dev/null ||
    apt_install "PostgreSQL's server for the tests" postgresql
}

install_mariadb() { # likewise
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || apt_install "MariaDB's server for the tests" mariadb-server
}

install_redis() { # likewise
  command -v redis-server >/dev/null || apt_install "Redis's server for the tests" redis-server
}

install_mosquitto() { # tests start brokers of their own, as a user without rights: the service is not used
  command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] || apt_install "Mosquitto, an MQTT broker for the tests," mosquitto
}

install_promtool() { # only this program of Debian's package, which would set up a server: 48 MB
  local place=${XDG_CACHE_HOME:-$HOME/.cache}/drivetrain/promtool folder
  command -v promtool >/dev/null && return
  [ -x "$place" ] && return
  command -v apt-get >/dev/null || give_up "promtool is missing, and this machine has no apt-get to get it with" \
    "install Prometheus the way this system does, then run the command again"
  if [ "$apt_updated" = no ] && can_be_root; then
    as_root apt-get update -qq || say "apt-get update failed; trying with the lists there are"
    apt_updated=yes
  fi
  say "fetching promtool from Debian's package prometheus for the tests (19 MB, once)"
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) \
    >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    rm -rf "$folder"
    give_up "promtool could not be fetched" "see the lines above; or apt-get install prometheus, then run the command again"
  }
  mkdir -p "$(dirname "$place")"
  mv "$folder/usr/bin/promtool" "$place"
  rm -rf "$folder"
}

for argument in "$@"; do
  case $argument in
    --browser) want_browser=yes ;;
    *) give_up "unknown argument $argument" "scripts/setup.sh [--browser]" ;;
  esac
done

warm_up() { # the checks start Spark dozens of times
  say "making Spark start faster on this machine (drivetrain warm-up: up to a minute, once, 170 MB of the cache)"
  "$VENV/bin/drivetrain" warm-up || say "that did not work; everything runs without it, only slower"
}

fetch_for_tests() { # a program of the folder tests, what it fetches and its size, and what an error calls that
  PYTHONPATH=tests "$VENV/bin/python" "tests/$1" fetched && return
  say "fetching $2 for the tests ($3 of the cache, once)"
  PYTHONPATH=tests "$VENV/bin/python" "tests/$1" fetch >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    give_up "$4 could not be fetched" "see the lines above, and docs/guide/kafka.md for proxies and mirrors"
  }
}

install_packages
install_java
if [ "$want_browser" = yes ]; then
  install_browser
  install_postgres
  install_mariadb
  install_redis
  install_mosquitto
  install_promtool
  "$VENV/bin/python" -c 'import sys
from drivetrain.spark.session import class_archive, local_files
sys.exit(not (local_files.usable_jar() and class_archive.archive_path().is_file()))' || warm_up
  fetch_for_tests integration/kafka/broker.py "Kafka's broker and Spark's connector to it" "50 MB" "Kafka's jars"
  fetch_for_tests object_store.py "an object store" "55 MB" "S3Proxy's jar"
  fetch_for_tests hdfs_server.py "an HDFS" "56 MB" "Hadoop's jar"
fi
say "ready: $("$VENV/bin/python" -V), $("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | head -n 1)"

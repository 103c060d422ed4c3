#!/usr/bin/env bash
# A real Kafka broker on this machine for trying things out: scripts/kafka.sh
# start | stop | status | fetch | topic NAME [PARTITIONS].
# It listens at localhost:9092 (KAFKA_PORT) and keeps its data in .kafka (KAFKA_DIRECTORY). No topic is made by itself.
set -euo pipefail
exec "$(dirname "$0")/../.venv/bin/python" "$(dirname "$0")/../tests/integration/kafka/broker.py" "$@"

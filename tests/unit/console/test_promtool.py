"""What is shipped for Prometheus, judged by its own tool: metrics, queries, rules, and when these fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from console_in_thread import ConsoleInThread
from test_metrics import SHIPPED
from test_reading import running

from drivetrain.console.access.roles import Role
from drivetrain.runtime.user_cache import cache_directory

ALERTS = SHIPPED / "alerts.yml"


def promtool(*arguments: str, given: str | None = None) -> str:
    """Run the tool, which must find nothing wrong."""
    program = shutil.which("promtool") or str(cache_directory() / "promtool")
    if not Path(program).exists():
        pytest.fail("promtool is needed: scripts/setup.sh --browser fetches it")
    done = subprocess.run(
        [program, *arguments], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_metrics_that_are_served_have_nothing_to_complain_about(console: ConsoleInThread) -> None:
    running(console)
    http = console.client_of(Role.GUEST)
    plain = http.get("/metrics", headers={"Accept": "text/plain;version=0.0.4;q=0.5"})
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "drivetrain_processor_in_messages_total{" in plain.text
    assert promtool("check", "metrics", given=plain.text).strip() == ""
    for accepted in ("*/*", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", ""):
        answer = http.get("/metrics", headers={"Accept": accepted})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")


def test_rules_and_queries_are_valid(tmp_path: Path) -> None:
    assert "SUCCESS: 10 rules found" in promtool("check", "rules", str(ALERTS))
    dashboard = json.loads((SHIPPED / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(queries)} rules found" in promtool("check", "rules", str(file))


OF = '{application="shop"'
WHAT_FIRES: dict[str, tuple[str, str, str, str]] = {
    # alert: the series, when it fires, when it does not, and after how long it fires
    "DrivetrainNoLeader": ("drivetrain_console_connected", "0x40", "0 1 0x38", "3m"),
    "DrivetrainApplicationDown": (f"drivetrain_application_up{OF}}}", "0x40", "1x40", "3m"),
    "DrivetrainCriticalFinding": (
        f'drivetrain_application_findings{OF}, severity="critical"}}',
        "1x40",
        "1 0 1 0 1 0x35",
        "6m",
    ),
    "DrivetrainWarningFinding": (
        f'drivetrain_application_findings{OF}, severity="warning"}}',
        "2x40",
        "2x15 0 2x24",
        "31m",
    ),
    "DrivetrainFragmentRestarts": (
        f'drivetrain_fragment_starts_total{OF}, fragment="hourly"}}',
        "1+1x40",
        "1 1 1 2x37",
        "20m",
    ),
    "DrivetrainProducerWaits": (
        f'drivetrain_channel_blocked_seconds{OF}, producer="orders", subscriber="hourly"}}',
        "0+60x40",
        "0 60 120 0 60 120 0x34",
        "10m",
    ),
    "DrivetrainCheckpointsFail": (f"drivetrain_checkpoints_failed_total{OF}}}", "0+1x40", "0x20 1x20", "35m"),
    "DrivetrainMessagesLost": (
        f"drivetrain_application_lost_messages_total{OF}}}",
        "0x10 7x30",
        "7x40",
        "15m",
    ),
    "DrivetrainDeadLetters": (
        f'drivetrain_processor_dead_letters_total{OF}, processor="parse"}}',
        "0+120x40",
        "0+30x40",
        "35m",
    ),
    "DrivetrainNoFreeSlots": ('drivetrain_worker_free_slots{worker="w1"}', "0x40", "0x20 1 0x20", "32m"),
}


def test_each_alert_fires_when_it_must_and_only_then(tmp_path: Path) -> None:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}
    assert alerts.keys() == WHAT_FIRES.keys(), "each has a series with which it fires"
    tests: list[dict[str, Any]] = []
    for name, (series, bad, good, after) in WHAT_FIRES.items():
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
        expected = labels | alerts[name]["labels"]
        if name == "DrivetrainNoFreeSlots":
            del expected["worker"]  # all workers together have none
        told = {
            key: re.sub(r"{{ \$labels\.(\w+) }}", lambda found, of=labels: of[found[1]], text)
            for key, text in alerts[name]["annotations"].items()
        }
        fires = [{"exp_labels": expected, "exp_annotations": told}]
        for values, alarms in ((bad, fires), (good, [])):
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": series, "values": values}],
                    "alert_rule_test": [{"alertname": name, "eval_time": after, "exp_alerts": alarms}],
                }
            )
    file = tmp_path / "fires.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in promtool("test", "rules", str(file))

"""The console: REST under `/api/v1`, events, metrics and pages of one cluster, in a process of its own.

It is a client of the cluster like any other: it holds no state that must survive, and no other process waits
for it. It needs the packages of the extra `drivetrain[console]`; `requirements.require_packages` reports
those that are missing.
"""

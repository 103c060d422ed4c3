"""What the processes of a cluster say to each other; who sends what to whom stands in each module.

    applications   client and master: submit, list, kill, restart
    code           whoever has or needs an application's files, and master
    leadership     anybody and master: who leads
    registration   worker and leading master; application master and leading master
    resources      application master and leading master: slots
    launching      leading master or application master, and worker: processes
    following      client and application master: status, progress, result
    executing      application master and executor: fragments
    flow           executors of an application, through its application master: flow control

Invariants:
1. Every request to the leading master that reaches another one is answered with `NotLeader`.
2. What cannot be done now for want of a majority is answered with `Failure("no-quorum", …)`.
3. Whatever acts for an application carries its epoch; a receiver that knows a higher one refuses it.
"""

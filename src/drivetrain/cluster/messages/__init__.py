"""The messages between the processes of a cluster; each module states their senders and receivers.

    applications   client and master: submit, list, kill, restart
    code           any process that has or needs an application's files, and master
    leadership     any process and master: who leads
    registration   worker and leading master; application master and leading master
    resources      application master and leading master: slots
    launching      leading master or application master, and worker: processes
    following      client and application master: status, progress, result
    executing      application master and executor: fragments
    changing       client, application master and executor: other versions of the graph
    flow           executors of an application, through its application master: flow control

"Asked" means that the sender waits for an answer; "sent", that it does not.

Invariants:
1. Every request to the leading master that reaches another one is answered with `NotLeader`.
2. A request that fails for lack of a majority is answered with `Failure("no-quorum", …)`.
3. Every message for an application carries its epoch; a receiver that knows a higher one refuses it.
"""

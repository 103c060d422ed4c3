"""Move money between accounts: a ledger and balances in one database, never one ahead of the other.

    drivetrain run examples/transfers.py --set database=bank.db
    drivetrain run examples/transfers.py --set database=postgresql://bank@localhost/bank
    drivetrain run examples/transfers.py --set database=mariadb://bank@localhost/bank

Two tables are written: `ledger` has every transfer once, `balances` every account with what it has now.
They come from different fragments of the application and are published together, at each of its
checkpoints: whoever reads both in one query, at any moment, and whatever is killed meanwhile, finds that
they agree, and that no money was made or lost. Accounts begin at 0 here, so the sum of all balances is
always 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivetrain import Application, Task, partitioners, sinks, sources

app = Application("transfers")
database = app.setting("database", doc="a SQLite file, or the address of a PostgreSQL or MySQL database")
transfers = app.setting("transfers", 100_000, doc="how many there are")
accounts = app.setting("accounts", 100, doc="between how many accounts")
per_second = app.setting("per-second", 2_000.0, doc="how many there are each second")


@dataclass
class Change:
    """What a transfer is to one of its two accounts."""

    account: int
    amount: int


@dataclass
class Balance:
    """What an account has, after so many changes."""

    account: int
    amount: int
    changes: int


class Balances(Task[Change, Balance]):
    """Keeps what each account has."""

    stateful = True

    def on_start(self, context: object) -> None:
        """Nobody has anything yet."""
        self.amounts: dict[int, tuple[int, int]] = {}

    def on_next(self, change: Change) -> Iterator[Balance]:
        """Change one account."""
        amount, changes = self.amounts.get(change.account, (0, 0))
        self.amounts[change.account] = amount + change.amount, changes + 1
        yield Balance(change.account, amount + change.amount, changes + 1)


def changes_of(transfer: Any) -> list[Change]:
    """The two sides of a transfer."""
    return [Change(transfer.source, -transfer.amount), Change(transfer.target, transfer.amount)]


def table(name: str, **how: Any) -> sinks.Sink:
    """A sink of a table of the database."""
    if database.startswith("postgres"):
        return sinks.postgresql(database, name, **how)
    if database.startswith(("mysql", "mariadb")):
        return sinks.mysql(database, name, **how)
    return sinks.sqlite(database, name, **how)


made = app.read(
    sources.generate(
        rows=transfers,
        rate_per_s=per_second,
        columns={
            "source": f"cast(pmod(hash(id), {accounts}) as int)",
            "target": f"cast(pmod(hash(id, 1), {accounts}) as int)",
            "amount": "cast(1 + pmod(hash(id, 2), 500) as int)",
        },
    )
)
made.select("id", "source", "target", "amount").sink(table("ledger"), name="ledger")
changes = made.flat_map(changes_of, returns=Change)
balances = changes.process(Balances, parallelism=2, partitioner=partitioners.hash("account"), name="balance")
balances.sink(table("balances", mode="upsert", key=["account"], newest="changes"), name="balances")

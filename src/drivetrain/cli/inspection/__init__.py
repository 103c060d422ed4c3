"""Commands that show a plan, an application, its messages and its states, and change nothing."""

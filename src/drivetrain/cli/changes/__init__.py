"""Commands that change an application while it runs, and what they show of the change."""

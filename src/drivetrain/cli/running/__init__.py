"""Commands that run an application in this process, and what they show of it."""
